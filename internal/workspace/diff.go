package workspace

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// hunk is one hunk of a unified diff. Its counts are those of its body: the header's are often wrong, and the body
// is what is meant.
type hunk struct {
	start  int // line of the old file, from 1; -1 = the header names none
	old    []string
	new    []string // with added telling which lines are new
	added  []bool
	noEOL  bool // the new side's last line has no newline
	header int  // line of the patch, for messages
}

// mismatch is a hunk whose context is not in the file.
type mismatch struct {
	hunk            int
	line            int // of the file, where it was looked for
	expected, found string
	reason          string
}

func (m *mismatch) Error() string {
	if m.reason != "" {
		return fmt.Sprintf("hunk %d: %s", m.hunk, m.reason)
	}
	return fmt.Sprintf("hunk %d does not match the file: line %d should be %.200q, found %.200q", m.hunk, m.line, m.expected, m.found)
}

var hunkHeader = regexp.MustCompile(`^@@(?: -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*| ?.*)$`)

// isDiff reports whether the text is meant as a unified diff: it begins like one and has a hunk. A Markdown file
// with a front matter begins with --- too, but has no hunk.
func isDiff(text string) bool {
	begins, hunk := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if !begins {
			if line == "" {
				continue
			}
			if !strings.HasPrefix(line, "--- ") && !strings.HasPrefix(line, "+++ ") && !strings.HasPrefix(line, "@@") &&
				!strings.HasPrefix(line, "diff ") && !strings.HasPrefix(line, "Index: ") {
				return false
			}
			begins = true
		}
		hunk = hunk || strings.HasPrefix(line, "@@")
	}
	return begins && hunk
}

// parseDiff reads the hunks of a diff of one file.
func parseDiff(text string) ([]hunk, error) {
	lines := strings.Split(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	i := 0
	for i < len(lines) && !strings.HasPrefix(lines[i], "@@") {
		i++ // the head: file names, which do not matter here
	}
	var hunks []hunk
	for i < len(lines) {
		if startsFile(lines, i) {
			return nil, fmt.Errorf("the patch changes more than one file; send one patch a file")
		}
		h, next, err := parseHunk(lines, i, len(hunks)+1)
		if err != nil {
			return nil, err
		}
		hunks = append(hunks, h)
		i = next
	}
	if len(hunks) == 0 {
		return nil, fmt.Errorf("the patch has no hunk")
	}
	return hunks, nil
}

// startsFile reports whether another file's part begins at line i, which a removed line "-- x" could look like.
func startsFile(lines []string, i int) bool {
	return strings.HasPrefix(lines[i], "diff ") || (i+2 < len(lines) && strings.HasPrefix(lines[i], "--- ") &&
		strings.HasPrefix(lines[i+1], "+++ ") && strings.HasPrefix(lines[i+2], "@@"))
}

func parseHunk(lines []string, i, number int) (hunk, int, error) {
	m := hunkHeader.FindStringSubmatch(lines[i])
	if m == nil {
		return hunk{}, 0, fmt.Errorf("line %d of the patch should begin a hunk with @@: %.100q", i+1, lines[i])
	}
	h := hunk{start: -1, header: i + 1}
	declared := -1
	if m[1] != "" {
		var err error
		if h.start, err = strconv.Atoi(m[1]); err != nil || h.start > 1<<30 {
			return h, 0, fmt.Errorf("hunk %d: line number %s is no line number", number, m[1])
		}
		declared = 1
		if m[2] != "" {
			if declared, err = strconv.Atoi(m[2]); err != nil {
				declared = -1
			}
		}
	}
	i++
	first := i
	for i < len(lines) && !strings.HasPrefix(lines[i], "@@") && !startsFile(lines, i) {
		i++
	}
	body := lines[first:i]
	// Blank lines at the end stand for blank context only as far as the header counts them.
	end := len(body)
	for end > 0 && body[end-1] == "" {
		end--
	}
	if missing := declared - oldCount(body[:end]); declared >= 0 && missing > 0 {
		end = min(end+missing, len(body))
	}
	for n, line := range body[:end] {
		kind, rest := byte(' '), ""
		if line != "" {
			kind, rest = line[0], line[1:]
		}
		switch kind {
		case ' ':
			h.old, h.new, h.added, h.noEOL = append(h.old, rest), append(h.new, rest), append(h.added, false), false
		case '-':
			h.old = append(h.old, rest)
		case '+':
			h.new, h.added, h.noEOL = append(h.new, rest), append(h.added, true), false
		case '\\':
			// "\ No newline at end of file" speaks of the line before it.
			if prev := n - 1; prev >= 0 && !strings.HasPrefix(body[prev], "-") {
				h.noEOL = true
			}
		default:
			return h, 0, fmt.Errorf("hunk %d: line %d of the patch begins with none of space, +, -: %.100q", number, first+n+1, line)
		}
	}
	if len(h.old) == 0 && len(h.new) == 0 {
		return h, 0, fmt.Errorf("hunk %d is empty", number)
	}
	return h, i, nil
}

func oldCount(body []string) int {
	n := 0
	for _, l := range body {
		if l == "" || l[0] == ' ' || l[0] == '-' {
			n++
		}
	}
	return n
}

// applyHunks applies all hunks, in order, or none. Context must match exactly, line ends apart. A hunk that does not
// match where its header says is applied elsewhere only if exactly one other place after the previous hunk matches.
func applyHunks(text string, hunks []hunk) (string, error) {
	src := splitLines(text)
	bare := make([]string, len(src))
	for i, l := range src {
		bare[i] = strings.TrimSuffix(strings.TrimSuffix(l, "\n"), "\r")
	}
	eol := "\n"
	if len(src) > 0 && strings.HasSuffix(src[0], "\r\n") {
		eol = "\r\n"
	}
	var out []string
	done := 0 // lines of src consumed
	for n := range hunks {
		h := &hunks[n]
		at, err := locate(bare, h, done, n+1)
		if err != nil {
			return "", err
		}
		out = append(out, src[done:at]...)
		from := at
		for i, l := range h.new {
			if h.added[i] {
				out = append(out, l+eol)
				continue
			}
			// A context line keeps its own end.
			for from < len(bare) && bare[from] != l {
				from++
			}
			out = append(out, src[from])
			from++
		}
		done = at + len(h.old)
		if done == len(src) && n == len(hunks)-1 && h.noEOL && len(out) > 0 {
			out[len(out)-1] = strings.TrimSuffix(out[len(out)-1], eol)
		}
	}
	out = append(out, src[done:]...)
	// A last line without a newline that is no longer the last gets one.
	for i := range len(out) - 1 {
		if !strings.HasSuffix(out[i], "\n") {
			out[i] += eol
		}
	}
	return strings.Join(out, ""), nil
}

// locate finds where the hunk's old lines stand, at or after from.
func locate(bare []string, h *hunk, from, number int) (int, error) {
	if len(h.old) == 0 {
		return locateInsertion(bare, h, from, number)
	}
	if at := h.start - 1; at >= from && matches(bare, h.old, at) {
		return at, nil
	}
	var places []int
	for at := from; at+len(h.old) <= len(bare); at++ {
		if matches(bare, h.old, at) {
			places = append(places, at)
		}
	}
	switch len(places) {
	case 1:
		return places[0], nil
	case 0:
		return 0, diagnose(bare, h, from, number)
	}
	return 0, &mismatch{hunk: number, line: places[0] + 1, reason: fmt.Sprintf(
		"its lines stand in %d places (lines %s) and not at the line its header names; add context", len(places), list(places))}
}

// locateInsertion places a hunk that only adds: after the line its header names.
func locateInsertion(bare []string, h *hunk, from, number int) (int, error) {
	switch {
	case len(bare) == 0:
		return 0, nil
	case h.start < 0:
		return 0, &mismatch{hunk: number, line: from + 1, reason: "it only adds lines and its header names no place; add context"}
	case h.start < from || h.start > len(bare):
		return 0, &mismatch{hunk: number, line: min(h.start, len(bare)), reason: fmt.Sprintf(
			"it adds after line %d, but the file has %d lines or an earlier hunk is there", h.start, len(bare))}
	}
	return h.start, nil
}

func matches(bare, want []string, at int) bool {
	if at < 0 || at+len(want) > len(bare) {
		return false
	}
	for i, l := range want {
		if bare[at+i] != l {
			return false
		}
	}
	return true
}

// diagnose finds the first line that differs, at the place that matches best.
func diagnose(bare []string, h *hunk, from, number int) error {
	best, at := -1, max(h.start-1, from)
	prefix := func(at int) int {
		n := 0
		for n < len(h.old) && at+n < len(bare) && bare[at+n] == h.old[n] {
			n++
		}
		return n
	}
	for i := from; i < len(bare); i++ {
		if n := prefix(i); n > 0 && n > best {
			best, at = n, i
		}
	}
	n := max(best, 0)
	m := &mismatch{hunk: number, line: at + n + 1, expected: h.old[n], found: "the end of the file"}
	if at+n < len(bare) {
		m.found = bare[at+n]
	}
	return m
}

func list(places []int) string {
	var s []string
	for i, p := range places {
		if i == 5 {
			s = append(s, "…")
			break
		}
		s = append(s, strconv.Itoa(p+1))
	}
	return strings.Join(s, ", ")
}
