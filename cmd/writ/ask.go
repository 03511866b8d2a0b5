package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"writ/runtime"
)

// asker puts tools' questions to the person in the terminal, one at a time.
type asker struct {
	mu    sync.Mutex
	lines chan string // closed at the end of the input
	err   error       // of reading; set before lines is closed
	out   io.Writer
}

// newAsker reads lines in a goroutine of its own, which ends with the input: nobody waits for a person who has left.
func newAsker(in io.Reader, out io.Writer) *asker {
	a := &asker{lines: make(chan string), out: out}
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 64<<10), runtime.MaxMessage)
	go func() {
		for s.Scan() {
			a.lines <- s.Text()
		}
		a.err = s.Err()
		close(a.lines)
	}()
	return a
}

// line is the next line; false at the end of the input, or when ctx ends first.
func (a *asker) line(ctx context.Context) (string, bool) {
	select {
	case s, ok := <-a.lines:
		return s, ok
	case <-ctx.Done():
		return "", false
	}
}

// elicitation is the part of an MCP elicitation request that a terminal can ask.
type elicitation struct {
	Method string `json:"method"`
	Params struct {
		Message string `json:"message"`
		Schema  struct {
			Properties map[string]property `json:"properties"`
			Required   []string            `json:"required"`
		} `json:"requestedSchema"`
	} `json:"params"`
}

type property struct {
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Enum        []string `json:"enum"`
	Default     any      `json:"default"`
}

// ask answers every question of a call. An empty answer to a required field declines; so does anything that is no form.
func (a *asker) ask(ctx context.Context, q runtime.Question) (json.RawMessage, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var requests map[string]elicitation
	if json.Unmarshal(q.Requests, &requests) != nil {
		return nil, false
	}
	answers := map[string]any{}
	for _, id := range sortedKeys(requests) {
		req := requests[id]
		if req.Method != "elicitation/create" {
			return nil, false
		}
		content, action := a.form(ctx, q.Tool, req)
		one := map[string]any{"action": action}
		if action == "accept" {
			one["content"] = content
		}
		answers[id] = one
	}
	b, err := json.Marshal(answers)
	return b, err == nil
}

func (a *asker) form(ctx context.Context, tool string, req elicitation) (map[string]any, string) {
	fmt.Fprintf(a.out, "\n%s asks: %s\n(an empty line takes the default; without one it declines a required field)\n", tool, printable(req.Params.Message))
	content := map[string]any{}
	for _, name := range sortedKeys(req.Params.Schema.Properties) {
		p := req.Params.Schema.Properties[name]
		for {
			fmt.Fprintf(a.out, "  %s: ", prompt(name, p))
			text, ok := a.line(ctx)
			if !ok {
				fmt.Fprintln(a.out)
				return nil, "cancel"
			}
			text = strings.TrimSpace(text)
			if text == "" {
				if p.Default != nil {
					content[name] = p.Default
				} else if slices.Contains(req.Params.Schema.Required, name) {
					return nil, "decline"
				}
				break
			}
			v, problem := p.parse(text)
			if problem == "" {
				content[name] = v
				break
			}
			fmt.Fprintln(a.out, "  "+problem)
		}
	}
	return content, "accept"
}

func prompt(name string, p property) string {
	label := name
	if p.Title != "" {
		label = p.Title
	}
	var notes []string
	if p.Description != "" {
		notes = append(notes, p.Description)
	}
	if len(p.Enum) > 0 {
		notes = append(notes, "one of "+strings.Join(p.Enum, ", "))
	} else if p.Type != "" && p.Type != "string" {
		notes = append(notes, p.Type)
	}
	if p.Default != nil {
		notes = append(notes, fmt.Sprintf("default %v", p.Default))
	}
	if len(notes) > 0 {
		label += " (" + strings.Join(notes, "; ") + ")"
	}
	return printable(label)
}

// parse reads a value as its type says; problem tells what is wrong.
func (p property) parse(text string) (v any, problem string) {
	switch {
	case len(p.Enum) > 0:
		if !slices.Contains(p.Enum, text) {
			return nil, "write one of " + strings.Join(p.Enum, ", ")
		}
		return text, ""
	case p.Type == "boolean":
		switch strings.ToLower(text) {
		case "y", "yes", "true":
			return true, ""
		case "n", "no", "false":
			return false, ""
		}
		return nil, "write yes or no"
	case p.Type == "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, "write a whole number"
		}
		return n, ""
	case p.Type == "number":
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, "write a number"
		}
		return n, ""
	}
	return text, ""
}

// printable drops what a server or a model could use to write over the terminal: control and format characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, s)
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
