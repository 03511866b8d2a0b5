package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"writ"
	"writ/participant"
)

const (
	admissionDoc  = "../docs/admission.md"
	admissionFile = "../docs/examples/admission.yaml"
)

func fences(t *testing.T, file, language string) []string {
	t.Helper()
	var out []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(read(t, file), -1) {
		out = append(out, m[1])
	}
	return out
}

// TestAdmissionDocument loads exactly what the document shows, in the file and in pieces.
func TestAdmissionDocument(t *testing.T) {
	yaml, jsons := fences(t, admissionDoc, "yaml"), fences(t, admissionDoc, "json")
	if len(yaml) != 2 || len(jsons) != 2 {
		t.Fatalf("%d yaml and %d json pieces", len(yaml), len(jsons))
	}
	snippet, whole, claim, call := yaml[0], yaml[1], jsons[0], jsons[1]
	if d := cmp.Diff(read(t, admissionFile), whole); d != "" {
		t.Errorf("the document does not show the file: %s", d)
	}
	cfg, report := Load(admissionFile)
	if cfg == nil || len(report.Warnings) != 0 {
		t.Fatalf("%v, warnings %v", report.Err(), report.Warnings)
	}
	want, ok := cfg.Participant("shopper")
	if !ok || len(cfg.Participants) != 1 || len(cfg.Opaque) != 0 {
		t.Fatalf("participants %+v, %+v", cfg.Participants, cfg.Opaque)
	}
	if want.Total != 16 || want.Concurrent != 4 || len(want.Bindings) != 1 || want.Profile != participant.ProfileV1 {
		t.Errorf("%+v", want)
	}

	// The first piece stays a file of its own; the claim is the one of the example, letter by letter.
	if !strings.Contains(whole, strings.TrimSpace(indent(claim, "        "))) {
		t.Error("the example does not hold the claim as the document shows it")
	}
	const piece = "    tool_affordances:\n      portal-client:\n        action_contract_refs: [probe-customer-portal-login]\n        observation_boundary_refs: [participant-view]\n"
	rest := strings.Replace(whole, piece, "", 1)
	if rest == whole || !strings.Contains(snippet, piece) {
		t.Fatal("the example does not hold the piece")
	}
	dir := write(t, t.TempDir(), map[string]string{"1.yaml": snippet, "2.yaml": rest})
	split, report := Load(dir)
	if split == nil {
		t.Fatal(report.Err())
	}
	if d := cmp.Diff(cfg.Participants, split.Participants); d != "" {
		t.Errorf("in two files: %s", d)
	}

	// The piece as it stands, without a policy, loads and binds nothing.
	bare := strings.Replace(whole, "    participant_refs: [shopper]\n    autonomous_execution: {profile: v1}\n", "", 1)
	cfg, report = Parse("writ.yaml", []byte(bare), "")
	if cfg == nil || len(cfg.Participants)+len(cfg.Opaque) != 0 {
		t.Fatalf("without a policy: %v", report.Err())
	}
	const warned = `2:3: behavior_specifications.participant-behavior: participant-behavior has no autonomous_execution: it owns nobody's invocations and binds nothing (hint: set autonomous_execution)
23:3: participants.shopper: participant shopper is in no autonomous_execution: it has no invocations (hint: add it to a specification that has one)
`
	if got := lines(report.Warnings); got != warned {
		t.Errorf("warnings:\n%s", got)
	}

	// The call names what was compiled.
	var request map[string]any
	if err := json.Unmarshal([]byte(call), &request); err != nil || len(request) != 11 {
		t.Fatalf("%d fields, %v", len(request), err)
	}
	b := want.Bindings[0]
	for key, value := range map[string]any{"participant_address": want.Participant, "participant_implementation_ref": want.Implementation,
		"tool_affordance_address": b.Affordance, "action_contract_address": b.Contract, "observation_boundary_address": b.Boundaries[0],
		"target_addresses": []any{b.Targets[0]}, "execution_scope_ref": want.Scope} {
		if d := cmp.Diff(value, request[key]); d != "" {
			t.Errorf("%s: %s", key, d)
		}
	}
}

// TestSnippetAlone: what the piece refers to and is not there is told, at the piece.
func TestSnippetAlone(t *testing.T) {
	_, report := Parse("writ.yaml", []byte(fences(t, admissionDoc, "yaml")[0]), "")
	const want = `5:32: behavior_specifications.participant-behavior.tool_affordances.portal-client.action_contract_refs[0]: no action contract is called "probe-customer-portal-login" [participant.tool-affordance-action-contract-ref-unbound]
6:37: behavior_specifications.participant-behavior.tool_affordances.portal-client.observation_boundary_refs[0]: no observation boundary is called "participant-view" [participant.tool-affordance-observation-boundary-ref-unbound]
`
	if got := lines(report.Errors); got != want {
		t.Errorf("got:\n%s", got)
	}
}

// TestAdmissionAddresses: the document's table of addresses is what the functions make.
func TestAdmissionAddresses(t *testing.T) {
	doc := read(t, admissionDoc)
	upper := strings.NewReplacer("name", "NAME", "spec2", "SPEC", "id9", "ID")
	for _, address := range []string{participant.Address("name"), participant.SpecificationAddress("spec2"), participant.AffordanceAddress("spec2", "id9"),
		participant.ContractAddress("name"), participant.BoundaryAddress("name"), participant.ScopeAddress("spec2"), participant.DerivedOuter} {
		if !strings.Contains(doc, "| `"+upper.Replace(address)+"` |") {
			t.Errorf("docs/admission.md does not have %s", upper.Replace(address))
		}
	}
}

// TestAdmissionKept: what the port refuses by, and what only registration can know, comes through.
func TestAdmissionKept(t *testing.T) {
	whole := read(t, admissionFile)
	cfg, _ := parse(t, strings.NewReplacer(
		"{profile: v1}", "{profile: participant-autonomous-execution/v3}\n    crossing_policy: guard",
		"    failure_classes:", "    shared_time: {semantic_version: participant-shared-time/v1, clock_ref: clock.main, guarantee: deadline, ticks: 3}\n    failure_classes:",
		"action_contract_ref: probe", "action_contract_address: participant.action-contract.probe",
	).Replace(whole))
	p := cfg.Participants[0]
	if p.Profile != participant.ProfileV3 || !p.Crossing || !p.Bindings[0].Temporal || len(p.Offers) != 1 {
		t.Errorf("%+v", p)
	}
	if _, ok := cfg.Participant(p.Participant); !ok {
		t.Error("not found by address")
	}
	if _, ok := cfg.Participant("x"); ok {
		t.Error("found what is not there")
	}

	start, end := strings.Index(whole, `        "invocation_tool_actions"`), strings.Index(whole, "    execution_bindings:")
	cfg, report := parse(t, whole[:start]+whole[end:])
	if len(cfg.Participants) != 0 || len(cfg.Opaque) != 1 || cfg.Opaque[0].Why != "runtime harness does not claim invocation_tool_actions" || len(report.Warnings) != 0 {
		t.Errorf("without the claim: %+v, %+v, %v", cfg.Participants, cfg.Opaque, report.Warnings)
	}
}

func TestAdmissionWarnings(t *testing.T) {
	whole := read(t, admissionFile)
	_, report := parse(t, strings.NewReplacer(
		"      - target_refs: [provision", "      - target_refs: [nodes.portal, provision.content.form, provision",
		"timeout_seconds: 30", "timeout_seconds: 30\n        max_retries: 2\n        max_action_attempts: 3\n        constraint_refs: [a]\n        evidence_refs: [b]",
	).Replace(whole))
	const want = `13:23: action_contracts.probe-customer-portal-login.effects[0].target_refs[0]: "nodes.portal" is no runtime address, so it is no target (hint: an address starts with provision.)
46:7: runtimes.harness.execution_bindings: no execution binding of harness covers provision.content.form for participant.action-contract.probe-customer-portal-login: such actions are refused (hint: add it to the target_addresses of one)
51:22: runtimes.harness.execution_bindings[0].max_retries is not used: admission never repeats an action (hint: a lost answer is told to the model, which decides)
`
	if got := lines(report.Warnings); got != want {
		t.Errorf("got:\n%s", got)
	}
}

// TestAdmissionByAnchor: what is written once and used twice is told at its place, once.
func TestAdmissionByAnchor(t *testing.T) {
	_, report := Parse("writ.yaml", []byte("runtimes:\n  a: &r\n    implementation: mini\n  b: *r\n"), "")
	const want = `3:21: runtimes.a.implementation: the implementation is "mini" [registry.implementation-invalid] (hint: write NAME@VERSION)
3:21: runtimes.b.implementation: runtime a has implementation mini already [participant.implementation-ambiguous] (hint: one runtime drives an implementation)
3:21: runtimes.b.implementation: the implementation is "mini" [registry.implementation-invalid] (hint: write NAME@VERSION)
`
	if got := lines(report.Errors); got != want {
		t.Errorf("got:\n%s", got)
	}
}

func TestCheckTargets(t *testing.T) {
	cfg, _ := parse(t, tools(`          - kind: go
            alias: g
            allowed: [a, b, c, d]
            targets:
              a: ["x:{id}/{to.address}", "{idd}"]
              b: ["{anything}"]
              c: ["{id}"]
              d: ["static"]
`))
	c := conn(t, agent(t, cfg, "main"), "g")
	specs := []writ.ToolSpec{
		{Name: "a", Schema: json.RawMessage(`{"type":"object","properties":{"id":{},"to":{}},"additionalProperties":false}`)},
		{Name: "b", Schema: json.RawMessage(`{"type":"object","properties":{"id":{}},"additionalProperties":true}`)},
		{Name: "d"},
	}
	const want = "11:42: g.targets.a: the tool has no argument \"idd\" (hint: did you mean id?)\n"
	if got := lines(CheckTargets(c, specs)); got != want {
		t.Errorf("got:\n%s", got)
	}
}

// TestExamplesLoad: every file of docs/examples loads without a warning, and by the schema.
func TestExamplesLoad(t *testing.T) {
	files, err := filepath.Glob("../docs/examples/*.yaml")
	if err != nil || !slices.Contains(files, filepath.FromSlash(admissionFile)) {
		t.Fatal(files, err)
	}
	compiled := compileSchema(t)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if cfg, report := Load(file); cfg == nil || len(report.Warnings) != 0 {
			t.Errorf("%s: %v, %v", file, report.Err(), report.Warnings)
		}
		if err := compiled.Validate(plainFile(t, data)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
