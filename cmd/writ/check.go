package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"writ"
	"writ/config"
	"writ/runtime"
)

type checkFlags struct {
	config, agent           string
	live, importing, accept bool
	json, spec, verbose     bool
	bindings                bool
}

func (a *app) checkCommand() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check -c FILE [--agent ID] [--live] [--import] [--bindings] [--json]",
		Short: "Check a configuration and show what its agents may do",
		Long: `Check a configuration and print, for each agent, its tools with what they mean and where that
comes from, and every value of its behaviour with the block that supplied it: what the runtime
enforces and the model reads. --bindings adds what admission is held against: for each agent, and each
participant with authored admission, the actions that a call can be admitted as, with their addresses,
targets and bounds.

It runs nobody's code and connects to nothing: Python tools are found by parsing. --import imports
them, --live starts the MCP servers and compares what they offer with what is allowed. --live --accept
pins the definitions of their tools in writ.pins.json beside the configuration: from then on a tool
that changed, or is new, is not usable until it is accepted.

Exit codes: 0 no errors (warnings are fine), 1 errors; with --live also a connection that cannot be
listed and a tool that is not as it was accepted.`,
		Example: `  writ check -c writ.yaml
  writ check -c writ.yaml --agent main --json
  writ check -c writ.yaml --live               # in CI: the servers are there, and their tools are as accepted`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.check(&f) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.config, "config", "c", "", "configuration: a YAML file or a directory of them")
	fl.StringVar(&f.agent, "agent", "", "only this agent")
	fl.BoolVar(&f.live, "live", false, "start MCP servers and list their tools")
	fl.BoolVar(&f.importing, "import", false, "import Python files instead of parsing them")
	fl.BoolVar(&f.accept, "accept", false, "with --live: pin the definitions of the tools as they are now")
	fl.BoolVar(&f.bindings, "bindings", false, "print every binding of admission, not their number alone")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.BoolVar(&f.spec, "builtins", false, "print the built-in tools as TOOL_SPEC JSON and nothing else")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log what servers and workers say")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

// checked is the JSON of check.
type checked struct {
	Agents       []checkedAgent   `json:"agents"`
	Participants []bound          `json:"participants"`
	Errors       []config.Problem `json:"errors"`
	Warnings     []config.Problem `json:"warnings"`
}

type checkedAgent struct {
	ID         string              `json:"id"`
	Dialect    writ.Dialect        `json:"dialect"`
	Model      string              `json:"model,omitempty"`
	Active     bool                `json:"active"`
	Reason     string              `json:"reason,omitempty"`
	Digest     string              `json:"digest"`
	Tools      []toolRow           `json:"tools"`
	Provenance []config.Provenance `json:"provenance"`
	Admission  bound               `json:"admission"`

	agent *config.Agent
}

func (a *app) check(f *checkFlags) error {
	if f.spec {
		return a.printJSON(builtinSpecs())
	}
	if f.config == "" {
		return usage("a configuration is required: -c FILE")
	}
	if f.accept && !f.live {
		return usage("--accept goes with --live")
	}
	accepted, err := loadPins(f.config)
	if err != nil {
		return refused("", err)
	}
	cfg, report := config.Load(f.config)
	out := checked{Agents: []checkedAgent{}, Participants: []bound{}, Errors: report.Errors, Warnings: report.Warnings}
	if report.OK() {
		ids := cfg.Agents()
		if f.agent != "" {
			agent, err := cfg.Agent(f.agent)
			if err != nil {
				out.Errors = append(out.Errors, config.Problem{File: f.config, Message: err.Error()})
				ids = nil
			} else {
				ids = []string{agent.ID}
			}
		} else {
			out.Participants = authored(cfg)
		}
		for _, id := range ids {
			agent, err := cfg.Agent(id)
			if err != nil {
				return refused("", err)
			}
			one, errs, problems, err := a.checkAgent(agent, f, accepted)
			if err != nil {
				return refused("", err)
			}
			out.Agents = append(out.Agents, one)
			out.Errors = append(out.Errors, errs...)
			out.Warnings = append(out.Warnings, problems...)
		}
	}
	if f.accept && report.OK() {
		if err := accepted.save(f.config); err != nil {
			return refused("", err)
		}
	}
	if out.Errors == nil {
		out.Errors = []config.Problem{}
	}
	if out.Warnings == nil {
		out.Warnings = []config.Problem{}
	}
	if f.json {
		if err := a.printJSON(out); err != nil {
			return err
		}
	} else {
		a.printChecked(out, f.bindings)
	}
	if len(out.Errors) > 0 {
		return &exitError{code: exitRefused}
	}
	return nil
}

func (a *app) checkAgent(agent *config.Agent, f *checkFlags, accepted pins) (one checkedAgent, errs, warnings []config.Problem, err error) {
	log := logger(a.err, f.verbose)
	conns, problems := a.describe(a.ctx, agent, listing{live: f.live, importing: f.importing}, log)
	if f.accept {
		for _, line := range accepted.accept(conns, a.definitions) {
			fmt.Fprintln(a.err, "writ:", line)
		}
	}
	for i := range conns {
		conns[i].Pins = accepted[conns[i].Config.Alias]
	}
	built, err := runtime.Build(a.ctx, agent, conns)
	if err != nil {
		return one, nil, nil, err
	}
	problems = append(problems, built.Problems...)
	unusable := map[string]string{} // tool ids, or aliases for a whole connection
	for _, p := range problems {
		alias, _, single := strings.Cut(p.Tool, ".")
		pos := agent.Pos
		if c, ok := agent.Connection(alias); ok {
			pos = c.Pos
		}
		told := config.Problem{File: pos.File, Line: pos.Line, Column: pos.Column, Message: p.Tool + ": " + p.Message, Hint: p.Hint}
		if usable := built.Has(p.Tool); !usable {
			unusable[p.Tool] = p.Message
		}
		// What was asked for by --live and is not there, or is not what was accepted, is an error.
		if f.live && (!single || strings.HasSuffix(p.Hint, "--accept")) {
			errs = append(errs, told)
		} else {
			warnings = append(warnings, told)
		}
	}
	for _, c := range conns {
		python, http := c.Config.Kind == config.KindPython, c.Config.Kind == config.KindHTTP
		if !python && !http && !(c.Config.Kind == config.KindMCP && f.live) {
			continue
		}
		specs, _, err := c.Tools.Tools(a.ctx)
		if err != nil {
			continue
		}
		errs = append(errs, config.CheckTargets(&c.Config, specs)...)
		if http {
			continue // a tool that its document does not have is told above
		}
		var names []string
		for _, s := range specs {
			names = append(names, s.Name)
		}
		warnings = append(warnings, config.CheckAllowed(&c.Config, names)...)
	}
	one = checkedAgent{ID: agent.ID, Dialect: agent.Dialect, Model: agent.ModelFor(config.StrongRole).String(), Active: agent.Active, Reason: agent.Reason,
		Digest: agent.Digest, Tools: inventory(agent, built), Provenance: agent.Provenance, Admission: derived(built), agent: agent}
	for i, t := range one.Tools {
		alias, _, _ := strings.Cut(t.ID, ".")
		for _, key := range []string{t.ID, alias} {
			if why, ok := unusable[key]; ok && t.Active && !built.Has(t.ID) {
				one.Tools[i].Active, one.Tools[i].Early, one.Tools[i].Reason = false, false, why
			}
		}
	}
	return one, errs, warnings, nil
}

// definitions are what a connection's allowed tools say they are.
func (a *app) definitions(c runtime.Connection) map[string]string {
	specs, _, err := c.Tools.Tools(a.ctx)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for _, s := range specs {
		if s.Definition != "" && c.Config.Allows(s.Name) {
			out[s.Name] = s.Definition
		}
	}
	return out
}

func (a *app) printChecked(out checked, bindings bool) {
	for i, ag := range out.Agents {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		printAgent(a.out, ag, bindings)
	}
	for i, p := range out.Participants {
		if i+len(out.Agents) > 0 {
			fmt.Fprintln(a.out)
		}
		fmt.Fprintf(a.out, "participant %s (runtime %s, implementation %s)\n", p.Name, p.Runtime, p.Implementation)
		p.print(a.out, bindings)
	}
	if len(out.Agents)+len(out.Participants) > 0 && len(out.Errors)+len(out.Warnings) > 0 {
		fmt.Fprintln(a.out)
	}
	for _, p := range out.Errors {
		fmt.Fprintln(a.out, "error:", p)
	}
	for _, p := range out.Warnings {
		fmt.Fprintln(a.out, "warning:", p)
	}
	read := count(len(out.Agents), "agent")
	if n := len(out.Participants); n > 0 {
		read += ", " + count(n, "participant")
	}
	fmt.Fprintf(a.out, "\n%s, %s, %s\n", read, count(len(out.Errors), "error"), count(len(out.Warnings), "warning"))
}

func printAgent(w io.Writer, ag checkedAgent, bindings bool) {
	head := fmt.Sprintf("agent %s (%s dialect", ag.ID, ag.Dialect)
	if ag.Model != "" {
		head += ", model " + ag.Model
	}
	fmt.Fprintln(w, head+")")
	if !ag.Active {
		fmt.Fprintf(w, "  INACTIVE: %s\n", ag.Reason)
	}
	fmt.Fprintln(w, "\n  behaviour")
	width := 0
	for _, p := range ag.Provenance {
		width = max(width, len(p.Key))
	}
	for _, p := range ag.Provenance {
		value := strings.Join(strings.Fields(p.Value), " ")
		if len([]rune(value)) > 60 {
			value = string([]rune(value)[:57]) + "…"
		}
		where := p.Block
		if !p.Pos.IsZero() {
			where += fmt.Sprintf(", line %d", p.Pos.Line)
		}
		fmt.Fprintf(w, "    %-*s  %s  (%s)\n", width, p.Key, value, where)
	}
	active := 0
	for _, t := range ag.Tools {
		if t.Active {
			active++
		}
	}
	fmt.Fprintf(w, "\n  tools: %d active, %d not\n", active, len(ag.Tools)-active)
	for _, t := range ag.Tools {
		state := ""
		if !t.Active {
			state = "  NOT ACTIVE: " + t.Reason
		}
		fmt.Fprintf(w, "\n    %s (%s)%s\n", t.ID, t.Kind, state)
		fmt.Fprintln(w, "    Scope:")
		for _, line := range t.traits.ScopeLines() {
			fmt.Fprintf(w, "        %s\n", line)
		}
		early := ""
		if t.Early {
			early = ", starts while the model streams"
		}
		fmt.Fprintf(w, "      effect %s; traits from %s%s\n", t.Effect, t.Source, early)
		for _, ns := range sortedKeys(t.namespaces) {
			fmt.Fprintf(w, "      in namespace %s: strategy %s\n", ns, t.namespaces[ns].Strategy)
		}
	}
	fmt.Fprintln(w, "\n  admission")
	ag.Admission.print(w, bindings)
}

// toolSpec is the static mapping of a built-in tool, in the form of the traits article's TOOL_SPEC.
type toolSpec struct {
	ID         string          `json:"id"`
	Traits     toolSpecTraits  `json:"tool_traits"`
	Purpose    string          `json:"purpose"`
	Parameters jsonRawIndented `json:"parameters"`
}

type toolSpecTraits struct {
	Strategy  []string        `json:"strategy"`
	Execution *writ.Execution `json:"execution,omitempty"`
}

func builtinSpecs() []toolSpec {
	var out []toolSpec
	for _, s := range runtime.BuiltinTools() {
		t := toolSpec{ID: "react." + s.Name, Purpose: s.Description, Parameters: jsonRawIndented(s.Schema)}
		if s.Declared != nil {
			t.Traits.Strategy, t.Traits.Execution = s.Declared.Strategy.Names(), s.Declared.Execution
		}
		out = append(out, t)
	}
	return out
}

// jsonRawIndented is raw JSON that an indenting encoder lays out anew.
type jsonRawIndented []byte

// MarshalJSON implements json.Marshaler.
func (j jsonRawIndented) MarshalJSON() ([]byte, error) { return j, nil }

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the configuration", Args: cobra.NoArgs,
		Long: `Print the JSON Schema (draft 2020-12) of the configuration. Editors complete and check with it:

  # yaml-language-server: $schema=writ.schema.json`,
		Example: "  writ schema > writ.schema.json",
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(append(config.Schema(), '\n'))
			return err
		},
	}
}
