package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"writ"
)

// Bounds of one search.
const (
	searchTime   = 5 * time.Second
	searchBytes  = 128 << 20 // read
	searchAnswer = 48_000    // bytes of matched text and context
	searchLine   = 400       // bytes of one line
)

type searchParams struct {
	Pattern      string `json:"pattern"`
	Root         string `json:"root"`
	NameRegex    string `json:"name_regex"`
	ContextLines int    `json:"context_lines"`
	MaxMatches   int    `json:"max_matches"`
	MaxFiles     int    `json:"max_files"`
}

// hit is one matched line. Read is what to hand to read as an item.
type hit struct {
	Ref    string   `json:"ref"`
	Line   int      `json:"line"`
	Text   string   `json:"text"`
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
	Read   readItem `json:"read"`
}

type searchAnswerBody struct {
	Hits          []hit   `json:"hits,omitempty"`
	Files         []Entry `json:"files,omitempty"` // without a pattern
	FilesScanned  int     `json:"files_scanned"`
	FilesSkipped  int     `json:"files_skipped,omitempty"` // binary or too large
	ScanTruncated bool    `json:"scan_truncated"`
	Reason        string  `json:"reason,omitempty"`
}

func (w *Workspace) search(ctx context.Context, raw json.RawMessage) (writ.Result, error) {
	var p searchParams
	if err := decode("rg", raw, &p); err != nil {
		return writ.Result{}, err
	}
	s := &searcher{w: w, p: p, deadline: time.Now().Add(searchTime)}
	if err := s.prepare(); err != nil {
		return writ.ErrorResult("not searched: %v", err), nil
	}
	if err := s.run(ctx); err != nil {
		return writ.Result{}, fmt.Errorf("workspace: rg: %w", err)
	}
	return writ.Result{Content: []writ.Content{jsonContent(s.out)}}, nil
}

// searcher is one search; everything it does is bounded.
type searcher struct {
	w             *Workspace
	p             searchParams
	pattern, name *regexp.Regexp
	root          string
	deadline      time.Time
	bytes, shown  int
	out           searchAnswerBody
}

func (s *searcher) prepare() (err error) {
	if s.p.Pattern == "" && s.p.NameRegex == "" {
		return errors.New("give a pattern or a name_regex")
	}
	if s.p.Pattern != "" {
		if s.pattern, err = regexp.Compile(s.p.Pattern); err != nil {
			return fmt.Errorf("pattern: %w", err)
		}
	}
	if s.p.NameRegex != "" {
		if s.name, err = regexp.Compile(s.p.NameRegex); err != nil {
			return fmt.Errorf("name_regex: %w", err)
		}
	}
	if r := s.p.Root; r != "" && r != "." && r != RefPrefix {
		if s.root, err = Canon(r); err != nil {
			return err
		}
	}
	if s.p.MaxMatches <= 0 {
		s.p.MaxMatches = 200
	}
	if s.p.MaxFiles <= 0 {
		s.p.MaxFiles = MaxFiles
	}
	s.p.ContextLines = min(max(s.p.ContextLines, 0), 10)
	return nil
}

func (s *searcher) run(ctx context.Context) error {
	for _, e := range s.w.Map(0) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.root != "" && e.Path != s.root && !strings.HasPrefix(e.Path, s.root+"/") {
			continue
		}
		if s.name != nil && !s.name.MatchString(e.Path) {
			continue
		}
		if s.out.FilesScanned >= s.p.MaxFiles {
			s.truncate(fmt.Sprintf("more than %d files", s.p.MaxFiles))
		}
		if s.out.ScanTruncated {
			return nil
		}
		if s.pattern == nil {
			s.list(e)
			continue
		}
		s.scan(e)
	}
	return nil
}

func (s *searcher) truncate(reason string) {
	if !s.out.ScanTruncated {
		s.out.ScanTruncated, s.out.Reason = true, reason
	}
}

// list takes a file by its name alone.
func (s *searcher) list(e Entry) {
	if len(s.out.Files) >= s.p.MaxMatches {
		s.truncate(fmt.Sprintf("more than %d matches", s.p.MaxMatches))
		return
	}
	s.out.FilesScanned++
	s.out.Files = append(s.out.Files, e)
}

func (s *searcher) scan(e Entry) {
	if int64(s.bytes)+e.Size > searchBytes {
		s.truncate(fmt.Sprintf("more than %d bytes", searchBytes))
		return
	}
	s.w.mu.RLock()
	data, _, err := s.w.load(e.Path, MaxResult)
	s.w.mu.RUnlock()
	if err != nil || !isText(data) {
		s.out.FilesSkipped++
		return
	}
	s.out.FilesScanned++
	s.bytes += len(data)
	lines := splitLines(string(data))
	for i, l := range lines {
		if i%256 == 0 && time.Now().After(s.deadline) {
			s.truncate(fmt.Sprintf("longer than %v", searchTime))
			return
		}
		if !s.pattern.MatchString(strings.TrimRight(l, "\r\n")) {
			continue
		}
		if len(s.out.Hits) >= s.p.MaxMatches {
			s.truncate(fmt.Sprintf("more than %d matches", s.p.MaxMatches))
			return
		}
		if s.shown >= searchAnswer {
			s.truncate("the answer is full; narrow the pattern")
			return
		}
		s.out.Hits = append(s.out.Hits, s.hit(e, lines, i))
	}
}

func (s *searcher) hit(e Entry, lines []string, i int) hit {
	first, last := max(i-s.p.ContextLines, 0), min(i+s.p.ContextLines, len(lines)-1)
	h := hit{Ref: e.Ref, Line: i + 1, Text: s.show(lines[i])}
	for _, l := range lines[first:i] {
		h.Before = append(h.Before, s.show(l))
	}
	for _, l := range lines[i+1 : last+1] {
		h.After = append(h.After, s.show(l))
	}
	start := max(i-10, 0)
	h.Read = readItem{Path: e.Ref, LineStart: start + 1, LineCount: min(len(lines)-start, 21)}
	return h
}

func (s *searcher) show(line string) string {
	line = strings.TrimRight(line, "\r\n")
	if len(line) > searchLine {
		line = strings.ToValidUTF8(line[:searchLine], "") + "…"
	}
	s.shown += len(line)
	return line
}
