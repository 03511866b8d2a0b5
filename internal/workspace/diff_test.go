package workspace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const poem = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n"

// TestPatchMatrix: what is applied, exactly; everything else changes nothing and says why.
func TestPatchMatrix(t *testing.T) {
	for _, tc := range []struct {
		name, file, patch, want, err string
	}{
		{"replace a line", poem, "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n", strings.Replace(poem, "two", "TWO", 1), ""},
		{"no file header", poem, "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n", strings.Replace(poem, "two", "TWO", 1), ""},
		{"wrong counts", poem, "@@ -1,30 +1,7 @@\n one\n-two\n+TWO\n+TWO AND A HALF\n three\n", strings.Replace(poem, "two", "TWO\nTWO AND A HALF", 1), ""},
		{"wrong line, unique place", poem, "@@ -50,3 +50,3 @@\n six\n-seven\n+SEVEN\n eight\n", strings.Replace(poem, "seven", "SEVEN", 1), ""},
		{"no line numbers", poem, "@@\n six\n-seven\n+SEVEN\n", strings.Replace(poem, "seven", "SEVEN", 1), ""},
		{"function context in header", poem, "@@ -2,2 +2,2 @@ func main() {\n two\n-three\n+THREE\n", strings.Replace(poem, "three", "THREE", 1), ""},
		{"two hunks", poem, "@@ -1,2 +1,1 @@\n one\n-two\n@@ -7,2 +6,3 @@\n seven\n+seven and a half\n eight\n",
			"one\nthree\nfour\nfive\nsix\nseven\nseven and a half\neight\n", ""},
		{"delete all", "a\nb\n", "@@ -1,2 +0,0 @@\n-a\n-b\n", "", ""},
		{"new file", "", "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n", "a\nb\n", ""},
		{"insert after line", "a\nb\n", "@@ -1,0 +2 @@\n+between\n", "a\nbetween\nb\n", ""},
		{"insert at start", "a\n", "@@ -0,0 +1 @@\n+first\n", "first\na\n", ""},
		{"append", "a\nb\n", "@@ -2,1 +2,2 @@\n b\n+c\n", "a\nb\nc\n", ""},
		{"append without newline at the end", "a\nb", "@@ -2,1 +2,2 @@\n b\n+c\n", "a\nb\nc\n", ""},
		{"no newline marker", "a\nb\n", "@@ -2 +2 @@\n-b\n+c\n\\ No newline at end of file\n", "a\nc", ""},
		{"old marker only", "a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+c\n", "a\nc\n", ""},
		{"blank context line stripped", "a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+B\n", "a\n\nB\n", ""},
		{"blank lines after the hunk", "a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n\n\n", "a\nB\n", ""},
		{"blank context at the end is counted", "a\nb\n\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n\n", "a\nB\n\nc\n", ""},
		{"removed line that looks like a header", "a\n-- b\nc\n", "@@ -1,3 +1,2 @@\n a\n--- b\n c\n", "a\nc\n", ""},
		{"CRLF file, LF patch", "a\r\nb\r\n", "@@ -1,2 +1,3 @@\n a\n-b\n+B\n+C\n", "a\r\nB\r\nC\r\n", ""},
		{"CRLF patch, LF file", "a\nb\n", "@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n+B\r\n", "a\nB\n", ""},
		{"unicode", "é\nü\n", "@@ -2 +2 @@\n-ü\n+ö\n", "é\nö\n", ""},
		{"git head", poem, "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -8 +8 @@\n-eight\n+EIGHT\n", strings.Replace(poem, "eight", "EIGHT", 1), ""},
		{"full text", poem, "all new\n", "all new\n", ""},
		{"front matter is no diff", poem, "---\ntitle: x\n---\nbody\n", "---\ntitle: x\n---\nbody\n", ""},
		{"list is no diff", poem, "- a\n- b\n", "- a\n- b\n", ""},

		{"wrong context", poem, "@@ -1,3 +1,3 @@\n one\n-zwei\n+TWO\n three\n", "", `hunk 1 does not match the file: line 2 should be "zwei", found "two"`},
		{"space at the end", poem, "@@ -1,2 +1,2 @@\n one \n-two\n+TWO\n", "", `line 1 should be "one ", found "one"`},
		{"second hunk wrong", poem, "@@ -1 +1 @@\n-one\n+ONE\n@@ -7 +7 @@\n-sieben\n+SEVEN\n", "", `hunk 2 does not match`},
		{"hunks out of order", poem, "@@ -7 +7 @@\n-seven\n+SEVEN\n@@ -1 +1 @@\n-one\n+ONE\n", "", `hunk 2 does not match`},
		{"beyond the end", "a\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "", "the end of the file"},
		{"two places", "x\ny\nx\ny\n", "@@ -9 +9 @@\n-x\n+z\n", "", "stand in 2 places (lines 1, 3)"},
		{"two places, right line", "x\ny\nx\ny\n", "@@ -3 +3 @@\n-x\n+z\n", "x\ny\nz\ny\n", ""},
		{"insertion without a place", "x\n", "@@\n+z\n", "", "names no place"},
		{"insertion beyond the end", "x\n", "@@ -9,0 +10 @@\n+z\n", "", "has 1 lines"},
		{"bad line", poem, "@@ -1 +1 @@\n-one\nONE\n", "", "begins with none of space, +, -"},
		{"empty hunk", poem, "@@ -1 +1 @@\n", "", "is empty"},
		{"two files", poem, "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+ONE\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-x\n+y\n", "", "more than one file"},
		{"huge number", poem, "@@ -99999999999999999999 +1 @@\n-one\n+ONE\n", "", "no line number"},
		{"numbered lines", poem, "     1\tone\n     2\tTWO\n", "", "begin with line numbers"},
		{"diff of nothing", "", "@@ -1 +1 @@\n-a\n+b\n", "", "hunk 1 does not match"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, dir := open(t)
			file := filepath.Join(dir, "files/f")
			if tc.file != "" {
				if err := os.WriteFile(file, []byte(tc.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			res := call(t, w, "patch", m{"path": "f", "patch": tc.patch})
			got, _ := os.ReadFile(file)
			if tc.err == "" {
				if res.IsError || string(got) != tc.want {
					t.Errorf("%+v\ngot  %q\nwant %q", res, got, tc.want)
				}
				return
			}
			if !res.IsError || !strings.Contains(res.Content[0].Text, tc.err) {
				t.Errorf("%+v, want an error with %q", res, tc.err)
			}
			if string(got) != tc.file {
				t.Errorf("a refused patch changed the file to %q", got)
			}
		})
	}
}

func TestPatchMismatchSaysWhatToRead(t *testing.T) {
	w, _ := open(t)
	call(t, w, "write", m{"path": "f", "content": poem})
	res := call(t, w, "patch", m{"path": "f", "patch": "@@ -3 +3 @@\n-drei\n+THREE\n"})
	var body struct {
		Code      string
		Hunk      int
		Line      int
		Expected  string
		Found     string
		Suggested struct{ Items []readItem } `json:"suggested_read"`
	}
	if err := json.Unmarshal(res.Content[1].JSON, &body); err != nil {
		t.Fatal(err)
	}
	if body.Code != "hunk_mismatch" || body.Hunk != 1 || body.Line != 3 || body.Expected != "drei" || body.Found != "three" ||
		len(body.Suggested.Items) != 1 || body.Suggested.Items[0] != (readItem{"conv:fi:files/f", 1, 8}) {
		t.Errorf("%+v", body)
	}
	if read := call(t, w, "read", m{"items": body.Suggested.Items}); statuses(t, read)[0].Status != "ok" {
		t.Errorf("the suggestion cannot be read: %+v", read)
	}
	if res := call(t, w, "patch", m{"path": "results/x", "patch": "y"}); !res.IsError {
		t.Error("results/ was patched")
	}
}

// FuzzPatch: a patch never crashes; what it yields holds every old line that no hunk removed, and every added line.
func FuzzPatch(f *testing.F) {
	f.Add(poem, "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n")
	f.Add("a\nb", "@@ -2,1 +2,2 @@\n b\n+c\n\\ No newline at end of file\n")
	f.Add("", "@@ -0,0 +1 @@\n+x\n")
	f.Add("x\r\ny\r\n", "@@\n-x\n+z\n@@\n y\n+w\n")
	f.Fuzz(func(t *testing.T, file, patch string) {
		hunks, err := parseDiff(patch)
		if err != nil {
			return
		}
		out, err := applyHunks(file, hunks)
		if err != nil {
			return
		}
		removed, added := 0, 0
		for _, h := range hunks {
			if len(h.new) != len(h.added) {
				t.Fatalf("%d new lines, %d marks", len(h.new), len(h.added))
			}
			kept := 0
			for _, a := range h.added {
				if a {
					added++
				} else {
					kept++
				}
			}
			removed += len(h.old) - kept
		}
		if got, want := len(splitLines(out)), len(splitLines(file))-removed+added; got != want {
			// An added line may be the empty last one without a newline.
			if got != want-1 || !hunks[len(hunks)-1].noEOL {
				t.Fatalf("%d lines, want %d: %q + %q = %q", got, want, file, patch, out)
			}
		}
	})
}
