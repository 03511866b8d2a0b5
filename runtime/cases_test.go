package runtime_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile("`([A-Za-z0-9_./]+)`")

// TestCasesPage: every transcript stands on docs/cases.md, and every transcript and test that the page names exists.
func TestCasesPage(t *testing.T) {
	page, err := os.ReadFile("../docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			named[m[1]] = true
		}
	}
	for name := range named {
		dir, test := ".", name
		if i := strings.LastIndexByte(name, '.'); i >= 0 {
			dir, test = "../"+name[:i], name[i+1:]
		}
		switch {
		case !strings.HasPrefix(test, "Test") && !strings.HasPrefix(test, "Fuzz"):
			if _, err := os.Stat("testdata/" + name + ".txtar"); err != nil {
				t.Errorf("the page names transcript %s: %v", name, err)
			}
		case !declared(t, dir, test):
			t.Errorf("the page names %s, which does not exist", name)
		}
	}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".txtar"); !named[name] {
			t.Errorf("transcript %s is not on docs/cases.md", name)
		}
	}
}

func declared(t *testing.T, dir, test string) bool {
	files, err := filepath.Glob(dir + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "\nfunc "+test+"(") {
			return true
		}
	}
	return false
}
