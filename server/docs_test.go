package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"writ/config"
)

var (
	exampleRE = regexp.MustCompile("(?s)```http\n(.*?)```\n(.*?)```json\n(.*?)```")
	madeUp    = regexp.MustCompile(`^((inv|act|conv)_[A-Z0-9]{20}|writ_inv_[0-9a-f]{64}|[0-9a-f]{32})$`)
	aTime     = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)
	faultRow  = regexp.MustCompile("(?m)^\\| (\\d{3}) \\| `([a-z_]+)` \\|")
)

// TestHTTPDocument runs every request of docs/http.md, in order, and holds what is answered against what the page says: the
// same fields with the same values, but for ids, keys and times.
func TestHTTPDocument(t *testing.T) {
	page, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	cfg, report := config.Load("../examples/portal.yaml")
	if !report.OK() {
		t.Fatal(report.Err())
	}
	f := newFixture(t, func(c *Config) { c.Participants, c.Opaque = cfg.Participants, nil })
	found := exampleRE.FindAllStringSubmatch(string(page), -1)
	if strings.Count(string(page), "```http\n") != len(found) || len(found) < 14 {
		t.Fatalf("%d requests, %d with an answer", strings.Count(string(page), "```http\n"), len(found))
	}
	tokens := map[string]string{"$TOKEN": testStart}
	real := map[string]string{} // by what stands on the page
	asked := map[string]bool{}
	for _, m := range found {
		a, pattern := f.parse(m[1], real, tokens)
		asked[pattern] = true
		var want any
		if err := json.Unmarshal([]byte(m[3]), &want); err != nil {
			t.Fatalf("%s: %v", m[3], err)
		}
		got := f.expect(200, a)
		compare(t, a.method+" "+a.path, want, any(got), real)
		if token, ok := got["invocation_token"].(string); ok {
			tokens["$INVOCATION_TOKEN"] = token
		}
	}
	for _, pattern := range f.s.mux.patterns {
		if !asked[pattern] && pattern != "GET /openapi.json" && pattern != "GET /v1/invocations/{id}" {
			t.Errorf("the page has no example of %s", pattern)
		}
	}
}

// parse reads a request as the page writes it.
func (f *fixture) parse(text string, real, tokens map[string]string) (asking, string) {
	for page, id := range real {
		text = strings.ReplaceAll(text, page, id)
	}
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	a := asking{noToken: true}
	a.method, a.path, _ = strings.Cut(lines[0], " ")
	for _, line := range lines[1:] {
		switch name, value, _ := strings.Cut(line, ": "); name {
		case "Authorization":
			a.token, a.noToken = tokens[strings.TrimPrefix(value, "Bearer ")], false
		case "Idempotency-Key":
			a.key = value
		}
	}
	if strings.TrimSpace(body) != "" {
		a.body = body
	}
	path, _, _ := strings.Cut(a.path, "?")
	path = regexp.MustCompile(`(invocations|operations)/[^/]+`).ReplaceAllString(path, "$1/{id}")
	path = strings.Replace(path, "participants/shopper", "participants/{participant}", 1)
	return a, a.method + " " + path
}

// compare holds an answer against the page, and learns what the page's ids are.
func compare(t *testing.T, at string, page, got any, real map[string]string) {
	t.Helper()
	switch want := page.(type) {
	case map[string]any:
		m, _ := got.(map[string]any)
		if a, b := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(m)); !slices.Equal(a, b) {
			t.Errorf("%s: the page has %v, the answer %v", at, a, b)
			return
		}
		for k := range want {
			compare(t, at+" "+k, want[k], m[k], real)
		}
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			t.Errorf("%s: the page has %d, the answer %d", at, len(want), len(list))
			return
		}
		for i := range want {
			compare(t, fmt.Sprint(at, " ", i), want[i], list[i], real)
		}
	case string:
		is, _ := got.(string)
		switch {
		case aTime.MatchString(want):
			if !aTime.MatchString(is) {
				t.Errorf("%s: %q is no time", at, is)
			}
		case madeUp.MatchString(want):
			if known, ok := real[want]; ok && known != is || !madeUp.MatchString(is) {
				t.Errorf("%s: %q, the page's %s was %q", at, is, want, known)
			}
			real[want] = is
		case want != is:
			t.Errorf("%s: the page says %q, the answer %q", at, want, is)
		}
	default:
		if page != got {
			t.Errorf("%s: the page says %v, the answer %v", at, page, got)
		}
	}
}

// TestFaultTable: the table of errors is the code's.
func TestFaultTable(t *testing.T) {
	page, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, f := range Faults() {
		want = append(want, fmt.Sprint(f.Status, " ", f.Code))
	}
	for _, m := range faultRow.FindAllStringSubmatch(string(page), -1) {
		got = append(got, m[1]+" "+m[2])
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has\n%v\nthe code\n%v", got, want)
	}
}
