package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"
)

// noSleep keeps a process with the race detector from waiting a second at its end.
const noSleep = "atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	seam = killer(os.Getenv("WRIT_KILL_WRITE"))
	_ = os.Setenv("GORACE", noSleep) // for the processes that the tests start
	testscript.Main(m, map[string]func(){
		"writ":    main,
		"witness": witness,
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       os.Getenv("WRIT_UPDATE_SCRIPTS") != "",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("LANG", "C.UTF-8")
			e.Setenv("GORACE", noSleep)
			e.Setenv("WRIT_DATA", filepath.Join(e.WorkDir, "data"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"code": code},
	})
}

// code N COMMAND… runs a command and expects its exit code.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND [ARG…]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		var ee interface{ ExitCode() int }
		if e, ok := err.(interface{ ExitCode() int }); ok {
			ee = e
			got = ee.ExitCode()
		} else {
			ts.Fatalf("%v", err)
		}
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// witness is an MCP server over stdio that writes each effect to a file of its own, with the idempotency key that came
// with the call, before it answers. It can end the process that started it, as kill -9 does.
func witness() {
	s := mcp.NewServer(&mcp.Implementation{Name: "witness", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "bump", Description: "Count."}, bump)
	mcp.AddTool(s, &mcp.Tool{Name: "look", Description: "Count, reading."}, bump)
	mcp.AddTool(s, &mcp.Tool{Name: "ask", Description: "Count, when a person agrees."}, bump)
	mcp.AddTool(s, &mcp.Tool{Name: "launch", Description: "Count, detached."}, bump)
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		syscall.Exit(1)
	}
	syscall.Exit(0) // at once, where os.Exit waits a second for the race detector: an MCP server has no GORACE
}

type bumpIn struct {
	Who   string `json:"who"`
	Kill  bool   `json:"kill,omitempty"`  // kill -9 the parent after the effect and the delay
	Delay int    `json:"delay,omitempty"` // milliseconds before what follows
	Fail  bool   `json:"fail,omitempty"`
}

type bumpOut struct {
	Who string `json:"who"`
}

func bump(ctx context.Context, req *mcp.CallToolRequest, in bumpIn) (*mcp.CallToolResult, bumpOut, error) {
	f, err := os.OpenFile(os.Getenv("WITNESS_FILE"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, bumpOut{}, err
	}
	line, _ := json.Marshal(effect{Who: in.Who, Key: fmt.Sprint(req.Params.Meta["writ/key"])})
	if _, err := f.Write(append(line, '\n')); err != nil {
		return nil, bumpOut{}, err
	}
	if err := f.Close(); err != nil {
		return nil, bumpOut{}, err
	}
	if in.Delay > 0 {
		timer := time.NewTimer(time.Duration(in.Delay) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, bumpOut{}, ctx.Err()
		}
	}
	if in.Kill {
		_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
	}
	if in.Fail {
		return nil, bumpOut{}, fmt.Errorf("told to fail")
	}
	return nil, bumpOut{Who: in.Who}, nil
}

// effect is one line of the witness's file.
type effect struct {
	Who string `json:"who"`
	Key string `json:"key"`
}
