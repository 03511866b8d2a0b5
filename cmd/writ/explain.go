package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"writ"
	"writ/config"
	"writ/model/recorded"
	"writ/runtime"
)

type explainFlags struct {
	config, agent, dialect string
	round                  int
	json, verbose          bool
}

// maxRound bounds a round that explain reads.
const maxRound = 16 << 20

func (a *app) explainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain -c FILE [--agent ID] [--dialect channel|native] [--json] [ROUND]",
		Short: "Judge a round without running it: what would the runtime do if the model said this",
		Long: `Judge the actions of one round in order, with the parser, the overseer and the validation of a real
turn, and without any effect. ROUND is a file, or standard input:

  a recording     (writ_recording: 1 …), of which --round N is judged
  a raw stream    in the channel dialect: <channel:action>{…}</channel:action> …
  a list of parts in the native dialect: the "parts:" of a recording

Nobody's code runs: Python tools are found by parsing, MCP tools are known by their configured names.
Callables of named services are judged by their namespace, though this version does not provide them.

Exit codes: 0 the round would stand, 1 it would be discarded or the input is not valid.`,
		Example: `  writ explain -c writ.yaml --agent main round.txt
  echo '<channel:action>{"action":"call_tool","tool_call":{"tool_id":"jobs.launch","params":{}}}</channel:action>' | writ explain -c writ.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.explain(&f, args) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.config, "config", "c", "", "configuration: a YAML file or a directory of them")
	fl.StringVar(&f.agent, "agent", "", "agent id (default: the configuration's default_agent)")
	fl.StringVar(&f.dialect, "dialect", "", "channel or native (default: the agent's)")
	fl.IntVar(&f.round, "round", 1, "which round of a recording")
	fl.BoolVar(&f.json, "json", false, "print one action a line as JSON")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	_ = cmd.RegisterFlagCompletionFunc("dialect", cobra.FixedCompletions([]string{"channel", "native"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) explain(f *explainFlags, args []string) error {
	cfg, err := a.load(f.config)
	if err != nil {
		return err
	}
	agent, err := a.agent(cfg, f.agent)
	if err != nil {
		return err
	}
	switch d := writ.Dialect(f.dialect); d {
	case "":
	case writ.Channel, writ.Native:
		agent.Dialect = d
	default:
		return usage("--dialect %s: channel or native", f.dialect)
	}
	name := "standard input"
	path := ""
	if len(args) == 1 {
		path, name = args[0], args[0]
	}
	data, err := readAll(a.in, path, maxRound)
	if err != nil {
		return refused("", fmt.Errorf("reading the round: %w", err))
	}
	events, err := roundEvents(name, data, agent.Dialect, f.dialect != "", f.round)
	if err != nil {
		return err
	}
	conns, problems := a.describe(a.ctx, agent, listing{unprovided: true}, logger(a.err, f.verbose))
	for _, p := range problems {
		fmt.Fprintf(a.err, "writ: %s: %s\n", p.Tool, p.Message)
	}
	built, err := runtime.Build(a.ctx, agent, conns)
	if err != nil {
		return refused("", err)
	}
	round, err := runtime.Explain(a.ctx, built, events)
	if err != nil {
		return refused("", err)
	}
	for i, e := range round.Actions {
		alias, _, _ := strings.Cut(e.Tool, ".")
		c, ok := agent.Connection(alias)
		if ok && c.Active && c.Kind == config.KindMCP && e.Decision == "accepted" {
			round.Actions[i].Reason += " (its arguments were not checked: the server was not asked)"
		}
		if ok && !c.Active && e.Decision == "accepted" {
			round.Actions[i].Reason += "; but " + c.Reason + ": a run answers " + string(writ.CodeUnknownTool)
		}
	}
	return a.printExplained(f, round)
}

// roundEvents reads a round in one of its three forms.
func roundEvents(name string, data []byte, dialect writ.Dialect, fixed bool, n int) (iter.Seq2[writ.ModelEvent, error], error) {
	text := strings.TrimPrefix(string(data), "\uFEFF")
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "":
		return nil, refused("", fmt.Errorf("%s is empty: there is no round to judge", name))
	case hasKey(trimmed, "writ_recording"):
		rec, err := recorded.Parse(name, data)
		if err != nil {
			return nil, refused("", err)
		}
		if n < 1 || n > rec.Len() {
			return nil, usage("--round %d: %s has %s", n, name, count(rec.Len(), "round"))
		}
		if rec.Dialect() != dialect {
			hint := "give --dialect " + string(rec.Dialect())
			if fixed {
				hint = ""
			}
			return nil, refused(hint, fmt.Errorf("%s is in the %s dialect, the agent speaks the %s one", name, rec.Dialect(), dialect))
		}
		return rec.Round(n - 1), nil
	case hasKey(trimmed, "parts") || hasKey(trimmed, "text"):
		return oneRound(name, text, dialect)
	case dialect == writ.Native:
		return nil, refused("", fmt.Errorf("%s is no native round: give a recording, or the parts: of one", name))
	}
	return func(yield func(writ.ModelEvent, error) bool) {
		_ = yield(writ.ModelEvent{Kind: writ.ModelText, Text: text}, nil) &&
			yield(writ.ModelEvent{Kind: writ.ModelFinish, Finish: writ.FinishStop}, nil)
	}, nil
}

// hasKey reports whether the text is YAML that has the key at its top level, comments aside.
func hasKey(text, key string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, key+":") || strings.HasPrefix(line, "- "+key+":") {
			return true
		}
		if strings.HasPrefix(line, "<") {
			return false
		}
	}
	return false
}

// oneRound reads a single entry of a recording by making a recording of it.
func oneRound(name, text string, dialect writ.Dialect) (iter.Seq2[writ.ModelEvent, error], error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "writ_recording: 1\ndialect: %s\nrounds:\n", dialect)
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case i == 0 && strings.HasPrefix(line, "- "):
			b.WriteString("  " + line + "\n")
		case i == 0:
			b.WriteString("  - " + line + "\n")
		case strings.HasPrefix(text, "- "):
			b.WriteString("  " + line + "\n")
		default:
			b.WriteString("    " + line + "\n")
		}
	}
	rec, err := recorded.Parse(name, b.Bytes())
	if err != nil {
		return nil, refused("", err)
	}
	return rec.Round(0), nil
}

func (a *app) printExplained(f *explainFlags, round runtime.Round) error {
	if f.json {
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		for _, e := range round.Actions {
			if err := enc.Encode(e); err != nil {
				return err
			}
		}
	} else {
		for _, e := range round.Actions {
			subject := e.Tool
			if subject == "" {
				subject = e.Action
			}
			if e.Decision == "accepted" {
				fmt.Fprintln(a.out, printable(fmt.Sprintf("✓ action %d %s: %s", e.Index, subject, e.Reason)))
			} else {
				fmt.Fprintln(a.out, printable(fmt.Sprintf("✗ action %d %s: %s: %s", e.Index, subject, e.Code, e.Reason)))
			}
		}
		if round.Answer != "" {
			fmt.Fprintf(a.out, "the answer would be: %s\n", printable(round.Answer))
		}
	}
	if round.Discarded != "" {
		fmt.Fprintf(a.err, "writ: the attempt would be discarded: %s\n", round.Discarded)
		return &exitError{code: exitRefused}
	}
	return nil
}
