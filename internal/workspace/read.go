package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"unicode/utf8"

	"writ"
)

// Caps of read.
const (
	maxReadItems  = 50
	maxReadChars  = 48_000  // of one path
	maxReadTotal  = 200_000 // of one call
	maxImageBytes = 5 << 20
)

type readItem struct {
	Path      string `json:"path"`
	LineStart int    `json:"line_start"`
	LineCount int    `json:"line_count"`
}

type readParams struct {
	Paths       []string   `json:"paths"`
	Items       []readItem `json:"items"`
	LineNumbers bool       `json:"line_numbers"`
	MaxChars    int        `json:"max_chars"`
	StatsOnly   bool       `json:"stats_only"`
}

// readStatus is what one path answered.
type readStatus struct {
	Path      string `json:"path"`
	Ref       string `json:"ref,omitempty"`
	Status    string `json:"status"` // ok, truncated, stats_only, image, binary, missing, not_a_file, too_large, out_of_range, invalid_path, error
	Bytes     int64  `json:"bytes,omitempty"`
	MIME      string `json:"mime,omitempty"`
	Lines     int    `json:"lines,omitempty"`
	FirstLine int    `json:"first_line,omitempty"`
	LastLine  int    `json:"last_line,omitempty"`
	SHA256    string `json:"sha256,omitempty"`
	Message   string `json:"message,omitempty"`
}

// decode reads a tool's parameters. They are validated already; the error is for callers that did not.
func decode(tool string, raw json.RawMessage, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("workspace: %s: the arguments do not fit: %w: %w", tool, err, writ.ErrNotStarted)
	}
	return nil
}

func jsonContent(v any) writ.Content {
	data, _ := json.Marshal(v) // of our own structs
	return writ.Content{Kind: writ.ContentJSON, JSON: data}
}

func (w *Workspace) read(ctx context.Context, raw json.RawMessage) (writ.Result, error) {
	var p readParams
	if err := decode("read", raw, &p); err != nil {
		return writ.Result{}, err
	}
	items := make([]readItem, 0, len(p.Paths)+len(p.Items))
	for _, s := range p.Paths {
		items = append(items, readItem{Path: s})
	}
	items = append(items, p.Items...)
	switch {
	case len(items) == 0:
		return writ.ErrorResult("nothing to read: give paths or items"), nil
	case len(items) > maxReadItems:
		return writ.ErrorResult("more than %d paths in one call; read them in several", maxReadItems), nil
	}
	if p.MaxChars <= 0 || p.MaxChars > maxReadChars {
		p.MaxChars = maxReadChars
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	var statuses []readStatus
	var contents []writ.Content
	left := maxReadTotal
	for _, it := range items {
		if err := ctx.Err(); err != nil {
			return writ.Result{}, fmt.Errorf("workspace: read: %w", err)
		}
		st, c := w.readOne(it, &p, left)
		statuses = append(statuses, st)
		if c != nil {
			left -= utf8.RuneCountInString(c.Text)
			contents = append(contents, *c)
		}
	}
	head := jsonContent(map[string]any{"items": statuses})
	return writ.Result{Content: append([]writ.Content{head}, contents...)}, nil
}

// readOne answers one path; the content is nil when there is nothing to show.
func (w *Workspace) readOne(it readItem, p *readParams, left int) (readStatus, *writ.Content) {
	st := readStatus{Path: it.Path}
	canonical, err := Canon(it.Path)
	if err != nil {
		st.Status, st.Message = "invalid_path", err.Error()
		return st, nil
	}
	st.Path, st.Ref = canonical, Ref(canonical)
	data, info, err := w.load(canonical, MaxResult)
	if info != nil {
		st.Bytes = info.Size()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		st.Status, st.Message = "missing", "no such file"
	case errors.Is(err, errNotRegular):
		st.Status, st.Message = "not_a_file", "a folder or a special file; rg lists a folder"
	case errors.Is(err, errTooLarge):
		st.Status, st.Message = "too_large", fmt.Sprintf("larger than %d bytes", MaxResult)
	case err != nil:
		st.Status, st.Message = "error", plainError(err)
	}
	if err != nil {
		return st, nil
	}
	st.SHA256 = digest(data)
	if !isText(data) {
		return w.readBinary(st, data, p)
	}
	st.MIME = "text/plain"
	lines := splitLines(string(data))
	st.Lines = len(lines)
	if p.StatsOnly {
		st.Status = "stats_only"
		return st, nil
	}
	return readText(st, lines, it, p, left)
}

func (w *Workspace) readBinary(st readStatus, data []byte, p *readParams) (readStatus, *writ.Content) {
	st.MIME, _, _ = strings.Cut(http.DetectContentType(data), ";")
	switch {
	case p.StatsOnly:
		st.Status = "stats_only"
	case strings.HasPrefix(st.MIME, "image/") && len(data) <= maxImageBytes:
		st.Status = "image"
		return st, &writ.Content{Kind: writ.ContentBlob, Data: data, MIME: st.MIME, Name: st.Ref}
	default:
		st.Status, st.Message = "binary", "not text; only its size and type are told"
	}
	return st, nil
}

func readText(st readStatus, lines []string, it readItem, p *readParams, left int) (readStatus, *writ.Content) {
	first, last := 1, len(lines)
	if it.LineStart > 0 {
		first = it.LineStart
	}
	if it.LineCount > 0 && it.LineCount < last-first+1 {
		last = first + it.LineCount - 1
	}
	if first > len(lines) && (len(lines) > 0 || it.LineStart > 1) {
		st.Status, st.Message = "out_of_range", fmt.Sprintf("the file has %d lines", len(lines))
		return st, nil
	}
	limit := max(min(p.MaxChars, left), 0)
	var b strings.Builder
	chars, shown := 0, first-1
	cut := false
	for i := first; i <= last && !cut; i++ {
		text := lines[i-1]
		if p.LineNumbers {
			text = fmt.Sprintf("%6d\t%s", i, text)
		}
		n := utf8.RuneCountInString(text)
		if chars+n > limit {
			text, cut = firstRunes(text, limit-chars), true
			if text == "" {
				break
			}
			n = limit - chars
		}
		b.WriteString(text)
		chars += n
		shown = i
	}
	st.Status, st.FirstLine, st.LastLine = "ok", first, shown
	if len(lines) == 0 {
		st.FirstLine = 0
	}
	head := fmt.Sprintf("[%s, lines %d-%d of %d]\n", st.Ref, st.FirstLine, shown, len(lines))
	if cut {
		st.Status = "truncated"
		st.Message = fmt.Sprintf("cut after %d characters, in line %d; read on with items [{path, line_start: %d, line_count}]", chars, shown, max(shown, 1))
		b.WriteString("\n[truncated: " + st.Message + "]")
	}
	return st, &writ.Content{Kind: writ.ContentText, Text: head + b.String(), MIME: "text/plain", Name: st.Ref}
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n <= 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// isText takes what is UTF-8 without NUL.
func isText(data []byte) bool { return utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 }

// splitLines cuts a text into lines that keep their ends. The empty text has none.
func splitLines(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// plainError is an error without the operating system's path, which is no business of the model's.
func plainError(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
