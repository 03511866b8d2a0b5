package writ_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"writ"
)

// layers is the import direction: what each package may import of this module, and of others. A package that is not
// here fails the test, so a new one states its place.
var layers = map[string]struct{ own, third []string }{
	"writ": {},

	"writ/participant":     {},
	"writ/trait":           {own: []string{"writ"}},
	"writ/config":          {own: []string{"writ", "writ/participant", "writ/trait"}, third: []string{"github.com/goccy/go-yaml", "github.com/robfig/cron/v3"}},
	"writ/store":           {own: []string{"writ"}},
	"writ/store/memory":    {own: []string{"writ", "writ/store"}},
	"writ/store/sqlite":    {own: []string{"writ", "writ/store"}, third: []string{"modernc.org/sqlite", "github.com/pressly/goose/v3", "golang.org/x/sys"}},
	"writ/store/storetest": {own: []string{"writ", "writ/store"}, third: []string{"github.com/google/go-cmp"}},
	"writ/internal/stream": {own: []string{"writ"}},
	"writ/internal/schema": {third: []string{"github.com/santhosh-tekuri/jsonschema/v6", "golang.org/x/text"}},

	"writ/internal/overseer": {own: []string{"writ", "writ/internal/stream"}},
	"writ/admission":         {own: []string{"writ", "writ/participant", "writ/store"}},
	"writ/internal/timeline": {own: []string{"writ", "writ/store"}},
	"writ/internal/prompt":   {own: []string{"writ", "writ/store", "writ/internal/stream", "writ/internal/timeline"}},
	"writ/service":           {own: []string{"writ"}},

	"writ/runtime": {own: []string{"writ", "writ/admission", "writ/config", "writ/internal/overseer", "writ/internal/prompt", "writ/internal/schema",
		"writ/internal/stream", "writ/internal/timeline", "writ/internal/workspace", "writ/participant", "writ/store", "writ/trait"}},

	// The ends: the root only, never each other, never the runtime.
	"writ/internal/modelhttp":     {own: []string{"writ"}},
	"writ/internal/modelreq":      {own: []string{"writ"}},
	"writ/model":                  {},
	"writ/model/anthropic":        {own: []string{"writ", "writ/internal/modelhttp", "writ/internal/modelreq"}, third: []string{"github.com/anthropics/anthropic-sdk-go/v2"}},
	"writ/model/openai":           {own: []string{"writ", "writ/internal/modelhttp", "writ/internal/modelreq"}, third: []string{"github.com/openai/openai-go/v3"}},
	"writ/model/recorded":         {own: []string{"writ"}, third: []string{"github.com/goccy/go-yaml"}},
	"writ/internal/workspace":     {own: []string{"writ"}},
	"writ/internal/dial":          {},
	"writ/internal/dial/dialtest": {},
	"writ/internal/mcpclient":     {own: []string{"writ", "writ/internal/dial"}, third: []string{"github.com/modelcontextprotocol/go-sdk", "github.com/google/jsonschema-go"}},
	"writ/tool/mcp":               {own: []string{"writ", "writ/internal/mcpclient"}},
	"writ/tool/http":              {own: []string{"writ", "writ/internal/dial"}, third: []string{"github.com/getkin/kin-openapi"}},
	"writ/tool/python":            {own: []string{"writ", "writ/internal/mcpclient"}},
	"writ/tool/gofunc":            {own: []string{"writ"}, third: []string{"github.com/google/jsonschema-go"}},

	"writ/server":              {own: []string{"writ", "writ/admission", "writ/participant", "writ/store"}, third: []string{"github.com/danielgtaylor/huma/v2"}},
	"writ/examples/harness-go": {}, // of an outside harness: nothing of this module

	"writ/gateway": {own: []string{"writ", "writ/admission", "writ/config", "writ/internal/mcpclient", "writ/internal/timeline", "writ/internal/workspace",
		"writ/participant", "writ/store"}, third: []string{"github.com/modelcontextprotocol/go-sdk"}},

	"writ/cmd/writ": {own: []string{"*"}, third: []string{"github.com/spf13/cobra", "github.com/modelcontextprotocol/go-sdk"}},
}

func TestImportDirection(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Standard", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	seen := map[string]bool{}
	for dec.More() {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(p.ImportPath, "writ/bench") || strings.Contains(p.ImportPath, "/testdata/") {
			continue // benchmarks may look at everything
		}
		layer, ok := layers[p.ImportPath]
		if !ok {
			t.Errorf("%s has no place in the table of layers", p.ImportPath)
			continue
		}
		seen[p.ImportPath] = true
		for _, imp := range p.Imports {
			switch {
			case imp == "writ" || strings.HasPrefix(imp, "writ/"):
				if !slices.Contains(layer.own, imp) && !slices.Contains(layer.own, "*") {
					t.Errorf("%s imports %s: against the import direction", p.ImportPath, imp)
				}
			case strings.Contains(strings.SplitN(imp, "/", 2)[0], "."):
				if !slices.ContainsFunc(layer.third, func(m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") }) {
					t.Errorf("%s imports %s, which its layer does not have", p.ImportPath, imp)
				}
			}
		}
	}
	for p := range layers {
		if !seen[p] {
			t.Errorf("the table of layers names %s, which does not exist", p)
		}
	}
}

var codeRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (.+) \\|$")

func TestRefusalTableIsTheDocument(t *testing.T) {
	doc, err := os.ReadFile("docs/refusals.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []writ.Code
	for _, m := range codeRow.FindAllStringSubmatch(string(doc), -1) {
		c := writ.Code(m[1])
		documented = append(documented, c)
		if c.Meaning() != m[2] {
			t.Errorf("%s: the document says %q, the code %q", c, m[2], c.Meaning())
		}
	}
	if !slices.Equal(documented, writ.Codes()) {
		t.Errorf("documented codes\n%v\ncodes\n%v", documented, writ.Codes())
	}
}

var link = regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)

func TestDocumentsLinkToWhatExists(t *testing.T) {
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("docs/design/*.md")
	if err != nil {
		t.Fatal(err)
	}
	docs = append(append(docs, more...), "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
	for _, d := range docs {
		b, err := os.ReadFile(d)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(d), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", d, m[1])
			}
		}
	}
}

func TestNoRegistryHostInLockFiles(t *testing.T) {
	for _, dir := range []string{"testdata/npm", "testdata/conformance"} {
		b, err := os.ReadFile(dir + "/package-lock.json")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), `"resolved"`) {
			t.Errorf("the lock file of %s names where its packages came from", dir)
		}
	}
}

// keyLike is what credentials of the services Writ talks to look like.
var keyLike = regexp.MustCompile(`sk-(ant-|proj-)?[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|xox[baprs]-[A-Za-z0-9-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY`)

// TestNoSecretInARecording looks through every recording, fixture and example that is committed.
func TestNoSecretInARecording(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "*.yaml", "*.yml", "*.txtar", "*.sse", "*.json", "*.jsonl", "*.md", "*.py").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(out))
	if len(files) < 100 {
		t.Fatalf("only %d files found", len(files))
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // removed in the working tree
		}
		if m := keyLike.Find(b); m != nil {
			t.Errorf("%s holds something like a key: %.12s…", f, m)
		}
	}
	if !keyLike.MatchString("sk-ant-" + strings.Repeat("a1", 12)) {
		t.Error("the pattern finds nothing")
	}
}

// TestTheCallIsTheExamples: the call in docs/admission.md is the one that the Python example makes, which its tests run.
func TestTheCallIsTheExamples(t *testing.T) {
	doc, err := os.ReadFile("docs/admission.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("examples/harness-python/harness.py")
	if err != nil {
		t.Fatal(err)
	}
	_, call, ok := strings.Cut(string(doc), "```python\n")
	call, _, _ = strings.Cut(call, "```")
	if !ok || len(call) < 500 || !strings.Contains(string(example), call) {
		t.Error("docs/admission.md shows another call than examples/harness-python/harness.py makes")
	}
}
