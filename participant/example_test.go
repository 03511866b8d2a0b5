package participant_test

import (
	"encoding/json"
	"fmt"

	"writ/participant"
)

// A program that has no configuration file authors admission in Go. The same rules hold.
func ExampleCompile() {
	authored := participant.Authored{
		Specifications: map[string]participant.Specification{"visit": {
			Participants: []string{"shopper"},
			Autonomous:   &participant.Policy{},
			Affordances: map[string]participant.Affordance{"client": {
				Contracts: []string{"login"}, Boundaries: []string{"view"},
			}},
		}},
		Contracts: map[string]participant.Contract{"login": {
			Effects: [][]string{{"provision.node.portal.service.http"}},
		}},
		Boundaries: map[string]participant.View{"view": {
			Observable: []string{participant.AffordanceRef("visit", "client")},
			Evidence:   []string{"evidence.page"},
		}},
		Participants: map[string]participant.Actor{"shopper": {}},
		Runtimes:     map[string]participant.Manifest{"harness": manifest()},
	}
	compiled, err := participant.Compile(authored)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range compiled.Participants {
		for _, b := range p.Bindings {
			fmt.Println(b.Participant, "may", b.Contract, "on", b.Targets[0])
		}
	}

	// Without the boundary's word nobody gets the tool.
	authored.Boundaries["view"] = participant.View{}
	_, err = participant.Compile(authored)
	for _, f := range participant.Faults(err) {
		fmt.Println(f.Rule)
	}
	// Output:
	// participant.behavior.shopper may participant.action-contract.login on provision.node.portal.service.http
	// participant.tool-affordance-view-unclassified
}

func ExampleRegister() {
	m := manifest()
	m.Claim.Concurrent = 32
	for _, f := range participant.Faults(participant.Register(m, true)) {
		fmt.Println(f.Text())
	}
	// Output:
	// 32 actions at the same time are more than 16 in all [registry.tool-actions-limits-invalid]
}

func manifest() participant.Manifest {
	return participant.Manifest{
		Implementation: "portal-harness@1.0.0",
		Autonomous:     true,
		Features:       map[string]participant.Level{participant.FeatureToolAffordances: participant.Exact},
		Claim:          &participant.Claim{Versions: []string{participant.SemanticVersion}, Total: 16, Concurrent: 4},
		Offers: []participant.Offer{{ID: "portal-login", Contract: participant.ContractAddress("login"),
			Implementation: "portal-harness@1.0.0", Targets: []string{"provision.node.portal.service.http"}}},
	}
}

func ExampleTemplate_Render() {
	account, err := participant.ParseTarget("account:{to.id}")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(account.Render(json.RawMessage(`{"to": {"id": 7.0}}`)))
	fmt.Println(account.Render(json.RawMessage(`{"to": {}}`)))
	// Output:
	// account:7 <nil>
	//  participant: target "account:{to.id}": argument to.id is missing
}
