package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"writ/config"
	"writ/participant"
	"writ/runtime"
)

// bound is what one participant's actions can be admitted as, in the JSON of check.
type bound struct {
	Name           string         `json:"name"`
	Address        string         `json:"address"`
	Runtime        string         `json:"runtime,omitempty"`
	Implementation string         `json:"implementation"`
	Specification  string         `json:"specification"`
	Scope          string         `json:"scope,omitempty"` // absent for an agent: the conversation
	OuterContract  string         `json:"outer_contract"`
	Profile        string         `json:"profile"`
	Port           bool           `json:"port"`
	Why            string         `json:"why,omitempty"` // no port
	Total          int            `json:"max_tool_actions_per_invocation,omitempty"`
	Concurrent     int            `json:"max_concurrent_tool_actions_per_invocation,omitempty"`
	Refused        string         `json:"refused,omitempty"` // the code that every action gets
	Withheld       []string       `json:"withheld_refs,omitempty"`
	Bindings       []boundBinding `json:"bindings"`
}

type boundBinding struct {
	Affordance string       `json:"affordance"`
	Contract   string       `json:"contract"`
	Targets    []string     `json:"targets"` // addresses, and an agent's templates as written
	Boundaries []string     `json:"boundaries"`
	Temporal   bool         `json:"temporal,omitempty"`
	Offers     []boundOffer `json:"offers"`
}

type boundOffer struct {
	ID       string   `json:"id"`
	Targets  []string `json:"targets,omitempty"` // absent: those of the binding
	InFlight int      `json:"max_in_flight,omitempty"`
	Timeout  string   `json:"timeout,omitempty"`
}

// authored are the participants that the configuration authors, by address.
func authored(cfg *config.Config) []bound {
	out := []bound{}
	for _, p := range cfg.Participants {
		out = append(out, boundOf(p))
	}
	for _, o := range cfg.Opaque {
		out = append(out, bound{Name: o.Name, Address: o.Participant, Runtime: o.Runtime, Implementation: o.Implementation,
			Specification: o.Specification, Scope: o.Scope, OuterContract: o.OuterContract, Profile: o.Profile, Why: o.Why,
			Bindings: []boundBinding{}})
	}
	slices.SortFunc(out, func(a, b bound) int { return strings.Compare(a.Address, b.Address) })
	return out
}

// derived is what the turns of an agent are held against: its tools as the configuration and their sources have them.
func derived(built *runtime.Agent) bound {
	out := boundOf(built.Compiled())
	templates := map[string][]string{} // by contract
	for _, t := range built.Tools() {
		for _, text := range t.Targets {
			if tmpl, err := participant.ParseTarget(text); err != nil || !tmpl.Static() {
				contract := participant.ContractAddress(t.Alias(), t.Spec.Name)
				templates[contract] = append(templates[contract], text)
			}
		}
	}
	for i := range out.Bindings {
		b := &out.Bindings[i]
		b.Targets = append(slices.Clone(b.Targets), templates[b.Contract]...)
	}
	return out
}

func boundOf(p participant.Compiled) bound {
	out := bound{Name: p.Name, Address: p.Participant, Runtime: p.Runtime, Implementation: p.Implementation, Specification: p.Specification,
		Scope: p.Scope, OuterContract: p.OuterContract, Profile: p.Profile, Port: true, Total: p.Total, Concurrent: p.Concurrent,
		Withheld: p.Withheld, Bindings: []boundBinding{}}
	switch {
	case p.Profile == participant.ProfileV3:
		out.Refused = "policy_profile_unsupported"
	case p.Crossing:
		out.Refused = "crossing_policy_unsupported"
	}
	for _, b := range p.Bindings {
		row := boundBinding{Affordance: b.Affordance, Contract: b.Contract, Targets: b.Targets, Boundaries: b.Boundaries, Temporal: b.Temporal,
			Offers: []boundOffer{}}
		for _, o := range p.Offers {
			if o.Contract == b.Contract {
				offer := boundOffer{ID: o.ID, Targets: o.Targets, InFlight: o.MaxInFlight}
				if o.Timeout > 0 {
					offer.Timeout = o.Timeout.String()
				}
				row.Offers = append(row.Offers, offer)
			}
		}
		out.Bindings = append(out.Bindings, row)
	}
	return out
}

// print writes one line, and with all every binding.
func (p *bound) print(w io.Writer, all bool) {
	if !p.Port {
		fmt.Fprintf(w, "    %s: no port, each invocation is one opaque action: %s\n", p.Address, p.Why)
		return
	}
	affordances := map[string]bool{}
	for _, b := range p.Bindings {
		affordances[b.Affordance] = true
	}
	hint := ""
	if !all {
		hint = " (--bindings lists them)"
	}
	fmt.Fprintf(w, "    %s: %s of %s, %s in all, %d at a time%s\n", p.Address, count(len(p.Bindings), "binding"),
		count(len(affordances), "affordance"), count(p.Total, "action"), p.Concurrent, hint)
	if p.Refused != "" {
		fmt.Fprintf(w, "    the port refuses every action: %s\n", p.Refused)
	}
	if !all {
		return
	}
	line := func(key, format string, args ...any) {
		fmt.Fprintf(w, "        %-10s  %s\n", key, fmt.Sprintf(format, args...))
	}
	last := ""
	for _, b := range p.Bindings {
		if b.Affordance != last {
			fmt.Fprintf(w, "\n    %s\n", b.Affordance)
			last = b.Affordance
		}
		fmt.Fprintf(w, "      %s\n", b.Contract)
		line("targets", "%s", strings.Join(b.Targets, ", "))
		line("boundaries", "%s", strings.Join(b.Boundaries, ", "))
		for _, o := range b.Offers {
			line("offer", "%s", o)
		}
		if b.Temporal {
			line("refused", "temporal_binding_unsupported")
		}
	}
	if len(p.Withheld) > 0 {
		fmt.Fprintf(w, "\n    withheld: %s\n", strings.Join(p.Withheld, ", "))
	}
}

func (o boundOffer) String() string {
	s := o.ID
	if o.InFlight > 0 {
		s += fmt.Sprintf(", %d at a time", o.InFlight)
	}
	if o.Timeout != "" {
		s += ", " + o.Timeout
	}
	return s
}
