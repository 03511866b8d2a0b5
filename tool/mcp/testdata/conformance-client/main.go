// Command conformance-client is what the MCP conformance suite drives: Writ's own client under each of its scenarios.
// The suite names the scenario in MCP_CONFORMANCE_SCENARIO and gives the server's address as the last argument.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"writ"
	"writ/tool/mcp"
)

// calls are the one call of each scenario.
var calls = map[string]writ.Call{
	"initialize":                          {},
	"tools_call":                          {Tool: "add_numbers", Params: json.RawMessage(`{"a":5,"b":3}`)},
	"sse-retry":                           {Tool: "test_reconnection", Params: json.RawMessage(`{}`)},
	"elicitation-sep1034-client-defaults": {Tool: "test_client_elicitation_defaults", Params: json.RawMessage(`{}`)},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "conformance-client:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	scenario := os.Getenv("MCP_CONFORMANCE_SCENARIO")
	call, ok := calls[scenario]
	if !ok || len(os.Args) < 2 {
		return fmt.Errorf("no scenario %q, or no address", scenario)
	}
	cfg := mcp.Config{Alias: scenario, URL: os.Args[len(os.Args)-1]}
	// WRIT_DECLINE runs a client as the runtime opens it: nobody answers in the middle of a call.
	if os.Getenv("WRIT_DECLINE") == "" {
		cfg.Elicit = func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"action":"accept","content":{}}`), nil
		}
	}
	server, err := mcp.Open(cfg)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := server.Close(); err == nil {
			err = cerr
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tools, problems, err := server.Tools(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%d tools, problems %v\n", len(tools), problems)
	if call.Tool == "" {
		return nil
	}
	call.IdempotencyKey, call.ToolCallID = "key-1", "call-1"
	res, err := server.Call(ctx, call)
	if err != nil {
		return err
	}
	out, err := json.Marshal(res)
	fmt.Println(string(out))
	return err
}
