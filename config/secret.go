package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Secret is a value of a field that may hold a credential: environment values, headers and API keys. It is written as
// text with references: ${VAR}, anywhere in it, is replaced by a variable; file:PATH, alone, by a file's content
// without its last line break. It is read only by [Secret.Resolve]; every way of printing it shows the references
// and nothing else.
//
// The value sits in a closure: fmt reaches through pointers and private fields where it cannot call methods, but
// never into a function.
type Secret struct{ reveal func() *secret }

type secret struct {
	text string   // as written; never printed
	vars []string // the variables it names, in order
	file string   // absolute path, for file:PATH
	path string   // PATH as written
	pos  Pos
}

var reference = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

const filePrefix = "file:"

// parseSecret reads the text of a secret field; dir is what a relative file is relative to.
func parseSecret(text, dir string) (Secret, error) {
	s := &secret{text: text}
	if path, ok := strings.CutPrefix(text, filePrefix); ok {
		if path = strings.TrimSpace(path); path == "" {
			return Secret{}, errors.New("file: names no file")
		}
		s.path, s.file = path, absolute(dir, path)
		return Secret{func() *secret { return s }}, nil
	}
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		s.vars = append(s.vars, m[1])
	}
	if strings.Contains(reference.ReplaceAllString(text, ""), "${") {
		return Secret{}, errors.New("a reference is not closed or names no variable")
	}
	return Secret{func() *secret { return s }}, nil
}

func envSecret(name string) Secret {
	s := &secret{text: "${" + name + "}", vars: []string{name}}
	return Secret{func() *secret { return s }}
}

// inside returns what the closure holds, or nil for the zero Secret.
func (s Secret) inside() *secret {
	if s.reveal == nil {
		return nil
	}
	return s.reveal()
}

func absolute(dir, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return filepath.Clean(path)
}

// IsZero reports whether nothing is configured.
func (s Secret) IsZero() bool { return s.reveal == nil }

// Literal reports whether the value itself stands in the configuration.
func (s Secret) Literal() bool {
	in := s.inside()
	return in != nil && len(in.vars) == 0 && in.file == ""
}

// Vars lists the environment variables the secret refers to.
func (s Secret) Vars() []string {
	if in := s.inside(); in != nil {
		return slices.Clone(in.vars)
	}
	return nil
}

// MissingError says which variable or file of a secret is missing.
type MissingError struct {
	Var  string // empty for a file
	File string
	Err  error
}

// Error implements error.
func (e *MissingError) Error() string {
	if e.Var != "" {
		return "environment variable " + e.Var + " is not set"
	}
	if errors.Is(e.Err, fs.ErrNotExist) {
		return "secret file " + e.File + " does not exist"
	}
	return "secret file " + e.File + " cannot be read: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Err }

// Resolve returns the value. lookupEnv is [os.LookupEnv] outside tests. The error is a [*MissingError]; it names the
// variable or file and never contains a value. The zero Secret resolves to "".
func (s Secret) Resolve(lookupEnv func(string) (string, bool)) (string, error) {
	in := s.inside()
	if in == nil {
		return "", nil
	}
	if in.file != "" {
		data, err := os.ReadFile(in.file)
		if err != nil {
			return "", &MissingError{File: in.file, Err: err}
		}
		text := strings.TrimSuffix(string(data), "\n")
		return strings.TrimSuffix(text, "\r"), nil
	}
	var missing error
	out := reference.ReplaceAllStringFunc(in.text, func(ref string) string {
		name := ref[2 : len(ref)-1]
		value, ok := lookupEnv(name)
		if !ok && missing == nil {
			missing = &MissingError{Var: name}
		}
		return value
	})
	if missing != nil {
		return "", missing
	}
	return out, nil
}

// String shows the references of the secret, "(literal)" for a value without one, and "" for the zero Secret.
func (s Secret) String() string {
	in := s.inside()
	switch {
	case in == nil:
		return ""
	case in.file != "":
		return filePrefix + in.path
	case len(in.vars) == 0:
		return "(literal)"
	}
	return "${" + strings.Join(in.vars, "} ${") + "}"
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// Format implements fmt.Formatter, so that no verb prints the inside.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText implements encoding.TextMarshaler; JSON and YAML use it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
