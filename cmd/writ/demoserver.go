package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
)

// demoServerCommand is the MCP server of the demo, over stdio: a real process with real effects.
func (a *app) demoServerCommand() *cobra.Command {
	return &cobra.Command{Use: "demo-server", Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		s := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
		mcp.AddTool(s, &mcp.Tool{Name: "search_notes", Description: "Search the team's notes."}, searchNotes)
		mcp.AddTool(s, &mcp.Tool{Name: "launch_index", Description: "Rebuild the search index of a topic in the background."}, launchIndex)
		return s.Run(cmd.Context(), &mcp.StdioTransport{})
	}}
}

type searchIn struct {
	Query string `json:"query" jsonschema:"a word to look for"`
}

type searchOut struct {
	Hits []string `json:"hits"`
}

func searchNotes(_ context.Context, _ *mcp.CallToolRequest, in searchIn) (*mcp.CallToolResult, searchOut, error) {
	files, err := filepath.Glob(filepath.Join(os.Getenv("WRIT_DEMO_NOTES"), "*.md"))
	if err != nil {
		return nil, searchOut{}, err
	}
	sort.Strings(files)
	out := searchOut{Hits: []string{}}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, searchOut{}, err
		}
		for line := range strings.Lines(string(b)) {
			if strings.Contains(strings.ToLower(line), strings.ToLower(in.Query)) {
				out.Hits = append(out.Hits, filepath.Base(f)+": "+strings.TrimSpace(line))
			}
		}
	}
	return nil, out, nil
}

type indexIn struct {
	Topic string `json:"topic" jsonschema:"what the index is about"`
}

type indexOut struct {
	Indexed int `json:"indexed"`
}

// indexWork is how long the job takes: long enough to be seen beside a model that writes.
const indexWork = 900 * time.Millisecond

// launchIndex counts itself first: the counter file is the demo's witness.
func launchIndex(ctx context.Context, _ *mcp.CallToolRequest, in indexIn) (*mcp.CallToolResult, indexOut, error) {
	path := os.Getenv("WRIT_DEMO_COUNTER")
	n := 0
	if b, err := os.ReadFile(path); err == nil {
		n, _ = strconv.Atoi(strings.TrimSpace(string(b))) // a damaged counter starts anew and shows
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, "%d\n", n+1), 0o600); err != nil {
		return nil, indexOut{}, err
	}
	files, err := filepath.Glob(filepath.Join(os.Getenv("WRIT_DEMO_NOTES"), "*.md"))
	if err != nil {
		return nil, indexOut{}, err
	}
	timer := time.NewTimer(indexWork)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, indexOut{}, ctx.Err()
	}
	return nil, indexOut{Indexed: len(files)}, nil
}
