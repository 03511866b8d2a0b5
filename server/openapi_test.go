package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"writ"
)

// TestDocument: what is served at /openapi.json is a valid OpenAPI 3.1 document, and every route that the server has is in
// it. That answers are what it says is checked with every request of the other tests.
func TestDocument(t *testing.T) {
	f := newFixture(t)
	served := f.expect(200, asking{path: "/openapi.json", noToken: true})
	raw, _ := json.Marshal(served)
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil || doc.OpenAPI != "3.1.0" {
		t.Fatalf("%s: %v", doc.OpenAPI, err)
	}
	var documented []string
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			documented = append(documented, method+" "+path)
			if _, pattern := f.s.mux.Handler(&http.Request{Method: method, Host: "x", URL: mustURL(strings.NewReplacer("{", "", "}", "").Replace(path))}); pattern != method+" "+path {
				t.Errorf("%s %s is documented and served by %q", method, path, pattern)
			}
			if open := op.Security == nil || len(*op.Security) == 0; open == strings.HasPrefix(path, "/v1/") {
				t.Errorf("%s %s: a token is needed under /v1 and nowhere else: %v", method, path, op.Security)
			}
		}
	}
	slices.Sort(documented)
	routes := slices.Clone(f.s.mux.patterns)
	slices.Sort(routes)
	if !slices.Equal(documented, routes) {
		t.Errorf("documented %v\nserved %v", documented, routes)
	}
	refusal := doc.Components.Schemas["Decision"].Value.Properties["refusal"].Value
	if len(refusal.Enum) != len(writ.Codes()) {
		t.Errorf("%d refusals, want %d", len(refusal.Enum), len(writ.Codes()))
	}
}
