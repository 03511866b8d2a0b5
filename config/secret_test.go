package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func TestSecretNeverShows(t *testing.T) {
	const value = "hunter2"
	s, err := parseSecret(value+"${TOKEN}", ".")
	if err != nil {
		t.Fatal(err)
	}
	literal, _ := parseSecret(value, ".")
	type holder struct {
		Public  Secret
		private Secret
		Map     map[string]Secret
	}
	for _, s := range []Secret{s, literal} {
		h := holder{s, s, map[string]Secret{"k": s}}
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, verb+"\n", s)
			fmt.Fprintf(&out, verb+"\n", &s)
			fmt.Fprintf(&out, verb+"\n", h)
			fmt.Fprintf(&out, verb+"\n", &h)
		}
		j, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		y, err := yaml.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(j)
		out.Write(y)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "s", s, "h", h)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "s", s, "h", h)
		if got := out.String(); strings.Contains(got, value) || strings.Contains(got, fmt.Sprintf("%x", value)) {
			t.Errorf("a printed form shows the value:\n%s", got)
		}
	}
	if s.String() != "${TOKEN}" || literal.String() != "(literal)" || (Secret{}).String() != "" {
		t.Errorf("%s, %s", s, literal)
	}
}

func TestSecretResolve(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("from-file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "a", "EMPTY": ""}[name]
		return v, ok
	}
	for _, tc := range []struct{ text, want, err string }{
		{"plain", "plain", ""},
		{"${A}", "a", ""},
		{"Bearer ${A}-${A}${EMPTY}", "Bearer a-a", ""},
		{"$A $", "$A $", ""},
		{"file:key", "from-file", ""},
		{"${A} ${GONE} ${ALSO}", "", "environment variable GONE is not set"},
		{"file:none", "", "secret file " + filepath.Join(dir, "none") + " does not exist"},
	} {
		s, err := parseSecret(tc.text, dir)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Resolve(env)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
			t.Errorf("%q: %q, %v", tc.text, got, err)
		}
		var missing *MissingError
		if err != nil && !errors.As(err, &missing) {
			t.Errorf("%q: %T", tc.text, err)
		}
	}
	if got, err := (Secret{}).Resolve(env); got != "" || err != nil {
		t.Errorf("zero: %q, %v", got, err)
	}
	// The value of a variable is not read again: it may hold what looks like a reference.
	s, _ := parseSecret("${A}", dir)
	if got, _ := s.Resolve(func(string) (string, bool) { return "${B}", true }); got != "${B}" {
		t.Errorf("expanded twice: %q", got)
	}
}

func TestCheckSecrets(t *testing.T) {
	cfg, report := parse(t, tools("          - {kind: python, ref: tools/workspace_jobs.py, allowed: [a], env: {X: '${GONE}', Y: '${HERE}', Z: 5}}\n")+
		"mcp: {services: {s: {url: 'http://h', headers: {A: 'Bearer ${ALSO}', B: 'file:none'}}}}\n")
	if len(report.Warnings) != 0 {
		t.Errorf("loading looks at secrets: %v", report.Warnings)
	}
	got := lines(cfg.CheckSecrets(func(name string) (string, bool) { return "", name == "HERE" }))
	none, _ := filepath.Abs("testdata/none")
	want := `5:7: the implied provider anthropic: environment variable ANTHROPIC_API_KEY is not set (hint: set ANTHROPIC_API_KEY)
7:81: workspace_jobs.env.X: environment variable GONE is not set (hint: set GONE)
8:52: mcp.services.s.headers.A: environment variable ALSO is not set (hint: set ALSO)
8:73: mcp.services.s.headers.B: secret file ` + none + ` does not exist (hint: check the path)
`
	if got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}
