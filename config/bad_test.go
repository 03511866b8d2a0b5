package config

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the expected problems in testdata/bad")

// TestBad holds every file of testdata/bad to its exact errors, in order. A file whose name starts with "shape-" is
// wrong in shape alone: the JSON Schema must refuse it too.
func TestBad(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil || len(files) < 40 {
		t.Fatalf("found %d files (%v)", len(files), err)
	}
	compiled := compileSchema(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cfg, report := Parse("writ.yaml", ar.Files[0].Data, "testdata")
			if cfg != nil || report.OK() {
				t.Errorf("loads without errors")
			}
			got := ""
			for _, p := range report.Errors {
				got += p.String() + "\n"
			}
			if *update {
				ar.Files[1].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := string(ar.Files[1].Data); got != want {
				t.Errorf("errors:\n%swant:\n%s", got, want)
			}
			if strings.HasPrefix(name, "shape-") {
				if err := compiled.Validate(plainFile(t, ar.Files[0].Data)); err == nil {
					t.Errorf("the schema accepts it")
				}
			}
			if strings.Contains(got, "secret-value") {
				t.Errorf("an error shows a secret")
			}
		})
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("writ.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("writ.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// plainFile is a YAML file as the values of encoding/json.
func plainFile(t *testing.T, data []byte) any {
	t.Helper()
	report := &Report{}
	body := parseTreeAny("x.yaml", data, report)
	if body == nil {
		t.Fatalf("no tree: %v", report.Errors)
	}
	return body.plain()
}
