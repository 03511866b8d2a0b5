package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"writ/config"
	"writ/model/recorded"
	"writ/runtime"
)

var (
	fence   = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	pyRef   = regexp.MustCompile(`ref: (\S+\.py)`)
	command = regexp.MustCompile(`writ (\w+)((?: --?[a-z-]+)*)`)
)

// TestDocumentsYAMLLoads: what a reader copies works.
func TestDocumentsYAMLLoads(t *testing.T) {
	n := 0
	for _, doc := range []string{"../../README.md", "../../docs/cli.md", "../../docs/tools.md"} {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fence.FindAllStringSubmatch(string(b), -1) {
			n++
			text := m[1]
			if strings.HasPrefix(text, "writ_recording:") {
				if _, err := recorded.Parse(doc, []byte(text)); err != nil {
					t.Errorf("%v", err)
				}
				continue
			}
			dir := t.TempDir()
			for _, ref := range pyRef.FindAllStringSubmatch(text, -1) {
				path := filepath.Join(dir, ref[1])
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, report := config.Parse(doc, []byte(text), dir); !report.OK() {
				t.Errorf("%s: %v", doc, report.Err())
			}
		}
	}
	if n < 3 {
		t.Errorf("only %d examples found", n)
	}
}

// TestDocumentsNameWhatExists: every command and flag in the documents is one of the program's.
func TestDocumentsNameWhatExists(t *testing.T) {
	root := (&app{in: strings.NewReader(""), out: io.Discard, err: io.Discard}).root()
	commands := map[string]*cobra.Command{"completion": nil, "help": nil}
	for _, c := range root.Commands() {
		commands[c.Name()] = c
	}
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range append(docs, "../../README.md") {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range regexp.MustCompile("`writ [^`]*`|bin/writ [^\n]*").FindAllString(string(b), -1) {
			m := command.FindStringSubmatch(code)
			if m == nil {
				continue
			}
			c, ok := commands[m[1]]
			if !ok {
				t.Errorf("%s: %s: there is no command %s", doc, code, m[1])
				continue
			}
			if c != nil { // the command that is meant may be one below
				for _, word := range strings.Fields(code)[2:] {
					for _, below := range c.Commands() {
						if below.Name() == strings.Trim(word, "`") {
							c = below
						}
					}
				}
			}
			for _, flag := range regexp.MustCompile(`--([a-z]+)`).FindAllStringSubmatch(code, -1) {
				if c != nil && c.Flags().Lookup(flag[1]) == nil && c.PersistentFlags().Lookup(flag[1]) == nil && c.InheritedFlags().Lookup(flag[1]) == nil && flag[1] != "help" {
					t.Errorf("%s: %s: no flag --%s", doc, code, flag[1])
				}
			}
		}
	}
	// The other way round: cli.md knows every command and flag.
	cli, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range commands {
		if !bytes.Contains(cli, []byte("writ "+name)) && (c == nil || !c.Hidden) && name != "help" {
			t.Errorf("docs/cli.md does not know writ %s", name)
		}
	}
	for _, typ := range runtime.EventTypes() {
		if !bytes.Contains(cli, []byte("`"+string(typ)+"`")) {
			t.Errorf("docs/cli.md does not know the event %s", typ)
		}
	}
}
