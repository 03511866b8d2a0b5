package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const docsFile = "../docs/config.md"

var fence = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// docsExamples are the whole configurations of docs/config.md.
func docsExamples(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, m := range fence.FindAllStringSubmatch(read(t, docsFile), -1) {
		out = append(out, m[1])
	}
	return out
}

// TestDocsExamplesLoad loads every yaml fence of the reference as a user would, with the files it names beside it.
func TestDocsExamplesLoad(t *testing.T) {
	examples := docsExamples(t)
	if len(examples) < 3 {
		t.Fatalf("found %d examples", len(examples))
	}
	dir := t.TempDir()
	for _, name := range []string{"tools/orders.py", "tools/jobs.py", "demo.jsonl"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, dir, map[string]string{name: ""})
	}
	for _, text := range examples {
		cfg, report := Parse("writ.yaml", []byte(text), dir)
		if cfg == nil {
			t.Errorf("%s\ndoes not load:\n%v", text, report.Err())
			continue
		}
		for _, id := range cfg.Agents() {
			if a := agent(t, cfg, id); !a.Active {
				t.Errorf("agent %s is inactive: %s", id, a.Reason)
			}
		}
	}
}

// TestDocsNameEveryKey walks the shapes: a key that the loader accepts is in the reference, in backquotes.
func TestDocsNameEveryKey(t *testing.T) {
	doc := read(t, docsFile)
	seen := map[reflect.Type]bool{}
	var keys []string
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[typ] || typ.PkgPath() != reflect.TypeFor[node]().PkgPath() || typ == reflect.TypeFor[node]() {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			if key := f.Tag.Get("key"); key != "" {
				keys = append(keys, key)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[fileShape]())
	if len(keys) < 80 {
		t.Fatalf("found %d keys", len(keys))
	}
	for _, key := range keys {
		if !strings.Contains(doc, "`"+key+"`") {
			t.Errorf("docs/config.md does not name `%s`", key)
		}
	}
}
