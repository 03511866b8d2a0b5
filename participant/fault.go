package participant

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with authored admission or with a registration.
type Fault struct {
	// At is where: keys and list positions from the root of what was given, as in
	// ["participants", "sam", "actions", "0"]. Empty for what is no part of a whole, as the text of a template.
	At      []string
	Rule    Rule // empty where the sentence says all
	Message string
	Hint    string // what to do; may be empty
	// Unknown is a name that nothing has, and Known what there is, for a hint with the nearest.
	Unknown string
	Known   []string
}

// Error implements error.
func (f *Fault) Error() string {
	s := "participant: "
	if len(f.At) > 0 {
		s += strings.Join(f.At, ".") + ": "
	}
	s += f.Text()
	if f.Hint != "" {
		s += " (hint: " + f.Hint + ")"
	}
	return s
}

// Text is the message with its rule, without the place and the hint.
func (f *Fault) Text() string {
	if f.Rule == "" {
		return f.Message
	}
	return f.Message + " [" + string(f.Rule) + "]"
}

// Faults are the faults inside an error of this package, in order.
func Faults(err error) []*Fault {
	switch e := err.(type) {
	case nil:
		return nil
	case interface{ Unwrap() []error }:
		var out []*Fault
		for _, inner := range e.Unwrap() {
			out = append(out, Faults(inner)...)
		}
		return out
	}
	var f *Fault
	if errors.As(err, &f) {
		return []*Fault{f}
	}
	return nil
}

func fault(hint, format string, args ...any) *Fault {
	return &Fault{Message: fmt.Sprintf(format, args...), Hint: hint}
}

// place is where the compiler is.
type place []string

func (p place) to(parts ...string) place { return append(slices.Clone(p), parts...) }

// faults collects what is wrong.
type faults struct {
	list []error
	told map[string]bool // one sentence per place
}

func (l *faults) add(at place, rule Rule, hint, format string, args ...any) *Fault {
	f := &Fault{At: at, Rule: rule, Message: fmt.Sprintf(format, args...), Hint: hint}
	key := strings.Join(at, "\x00") + "\x00" + f.Text()
	if l.told == nil {
		l.told = map[string]bool{}
	}
	if !l.told[key] {
		l.told[key] = true
		l.list = append(l.list, f)
	}
	return f
}

func (l *faults) err() error { return errors.Join(l.list...) }
