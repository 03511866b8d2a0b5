package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"syscall"
	"unicode/utf8"

	"writ"
)

type writeParams struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Channel string `json:"channel"`
	Kind    string `json:"kind"`
}

type patchParams struct {
	Path    string `json:"path"`
	Patch   string `json:"patch"`
	Channel string `json:"channel"`
	Kind    string `json:"kind"`
}

// written is the answer of write and patch.
type written struct {
	Ref     string `json:"ref"`
	Path    string `json:"path"`
	Bytes   int    `json:"bytes"`
	SHA256  string `json:"sha256"`
	Created bool   `json:"created"`
	Channel string `json:"channel"`
	Kind    string `json:"kind"`
	Hunks   int    `json:"hunks,omitempty"`
	Note    string `json:"note,omitempty"`
}

func defaults(channel, kind *string) error {
	if *channel == "" {
		*channel = "internal"
	}
	if *kind == "" {
		*kind = "file"
	}
	switch *channel {
	case "canvas", "timeline_text", "internal":
	default:
		return fmt.Errorf("channel %q is none of canvas, timeline_text, internal", *channel)
	}
	if *kind != "display" && *kind != "file" {
		return fmt.Errorf("kind %q is none of display, file", *kind)
	}
	return nil
}

func (w *Workspace) write(raw json.RawMessage) (writ.Result, error) {
	var p writeParams
	if err := decode("write", raw, &p); err != nil {
		return writ.Result{}, err
	}
	canonical, err := writable(p.Path)
	if err == nil {
		err = defaults(&p.Channel, &p.Kind)
	}
	if err != nil {
		return writ.ErrorResult("not written: %v", err), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.commit(canonical, p.Content, written{Channel: p.Channel, Kind: p.Kind})
}

// commit stores the text and answers. mu must be held.
func (w *Workspace) commit(canonical, text string, out written) (writ.Result, error) {
	switch {
	case len(text) > MaxFile:
		return writ.ErrorResult("not written: %s would have %d bytes; the limit is %d", canonical, len(text), MaxFile), nil
	case !utf8.ValidString(text):
		return writ.ErrorResult("not written: the text is not UTF-8"), nil
	}
	created, err := w.store(canonical, []byte(text))
	if errors.Is(err, errNotDurable) {
		return writ.Result{}, fmt.Errorf("workspace: %s: %w", canonical, err)
	}
	if err != nil {
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
			err = errors.New("a part of the path is a file, not a folder")
		}
		return writ.ErrorResult("not written: %s: %s", canonical, plainError(err)), nil
	}
	out.Ref, out.Path, out.Bytes, out.SHA256, out.Created = Ref(canonical), canonical, len(text), digest([]byte(text)), created
	return writ.Result{Content: []writ.Content{jsonContent(out)}}, nil
}

func (w *Workspace) patch(raw json.RawMessage) (writ.Result, error) {
	var p patchParams
	if err := decode("patch", raw, &p); err != nil {
		return writ.Result{}, err
	}
	canonical, err := writable(p.Path)
	if err == nil {
		err = defaults(&p.Channel, &p.Kind)
	}
	if err != nil {
		return writ.ErrorResult("not written: %v", err), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out := written{Channel: p.Channel, Kind: p.Kind}
	if !isDiff(p.Patch) {
		if numbered(p.Patch) {
			return writ.ErrorResult("not written: the lines begin with line numbers, as read shows them; send the text without them"), nil
		}
		out.Note = "not a diff: the file's whole text was replaced"
		return w.commit(canonical, p.Patch, out)
	}
	old, _, err := w.load(canonical, MaxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		old = nil
	case err != nil:
		return writ.ErrorResult("not written: %s: %s", canonical, plainError(err)), nil
	case !isText(old):
		return writ.ErrorResult("not written: %s is not text", canonical), nil
	}
	hunks, err := parseDiff(p.Patch)
	if err != nil {
		return writ.ErrorResult("not written: %v", err), nil
	}
	text, err := applyHunks(string(old), hunks)
	if err != nil {
		return patchFailure(canonical, len(splitLines(string(old))), err), nil
	}
	out.Hunks = len(hunks)
	return w.commit(canonical, text, out)
}

// patchFailure says which hunk did not match, what was expected and found, and what to read before the next try.
func patchFailure(canonical string, lines int, err error) writ.Result {
	var m *mismatch
	if !errors.As(err, &m) {
		return writ.ErrorResult("not written: %v", err)
	}
	res := writ.ErrorResult("not written: %v", m)
	body := map[string]any{"code": "hunk_mismatch", "hunk": m.hunk, "line": m.line, "expected": m.expected, "found": m.found}
	if lines > 0 {
		start := min(max(m.line-10, 1), lines)
		body["suggested_read"] = map[string]any{"items": []readItem{{Path: Ref(canonical), LineStart: start, LineCount: min(30, lines-start+1)}}}
	}
	res.Content = append(res.Content, jsonContent(body))
	return res
}

var lineNumber = regexp.MustCompile(`^ *[0-9]+\t`)

// numbered reports whether every line carries a number as read with line_numbers shows it.
func numbered(text string) bool {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) < 2 {
		return false
	}
	for _, l := range lines {
		if !lineNumber.MatchString(l) {
			return false
		}
	}
	return true
}
