package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Pos is a place in a configuration file. Line and Column start at 1 and count characters; 0 means the whole file.
type Pos struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// String is "file:line:column".
func (p Pos) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// IsZero reports whether nothing was said about the place: a built-in default.
func (p Pos) IsZero() bool { return p == Pos{} }

// Problem is one thing wrong with the configuration: what, where, and what to do.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// String is "file:line:column: message (hint: …)".
func (p Problem) String() string {
	return Pos{p.File, p.Line, p.Column}.String() + ": " + p.Message + hinted(p.Hint)
}

// Report is what a load found, sorted by place. Errors make the configuration unusable; warnings do not.
type Report struct {
	Errors   []Problem `json:"errors"`
	Warnings []Problem `json:"warnings"`
}

// OK reports whether there are no errors.
func (r *Report) OK() bool { return len(r.Errors) == 0 }

// Err is nil without errors; otherwise its text has one problem a line.
func (r *Report) Err() error {
	if r.OK() {
		return nil
	}
	lines := make([]string, len(r.Errors))
	for i, p := range r.Errors {
		lines[i] = p.String()
	}
	return errors.New(strings.Join(lines, "\n"))
}

func problemAt(pos Pos, hint, format string, args ...any) Problem {
	return Problem{pos.File, pos.Line, pos.Column, fmt.Sprintf(format, args...), hint}
}

func (r *Report) errorf(pos Pos, hint, format string, args ...any) {
	r.Errors = append(r.Errors, problemAt(pos, hint, format, args...))
}

func (r *Report) warnf(pos Pos, hint, format string, args ...any) {
	r.Warnings = append(r.Warnings, problemAt(pos, hint, format, args...))
}

// sort orders both lists by place and drops exact repeats, which an anchor used twice would cause.
func (r *Report) sort() {
	for _, list := range []*[]Problem{&r.Errors, &r.Warnings} {
		slices.SortStableFunc(*list, func(a, b Problem) int {
			return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
				cmp.Compare(a.Message, b.Message))
		})
		*list = slices.Compact(*list)
	}
}

// quote shows a name from the file; long ones are cut.
func quote(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}
