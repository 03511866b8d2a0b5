package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// formats are JSON alone, read strictly: one value, known fields, each once, in UTF-8. Two readers of a request
// must not see two requests.
func formats() map[string]huma.Format {
	f := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: strict}
	return map[string]huma.Format{"application/json": f, "json": f}
}

func strict(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("the body is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return readable(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("the body has something after its JSON value")
	}
	dec = json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return names(dec)
}

// readable says what is wrong without showing what was sent.
func readable(err error) error {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: it must be a JSON %s", wrong.Field, kind(wrong.Type.Kind().String()))
	case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the body is not valid JSON")
	}
	return errors.New(shorten(err.Error())) // "json: unknown field …"
}

func kind(k string) string {
	switch k {
	case "struct", "map":
		return "object"
	case "slice":
		return "array"
	case "bool":
		return "boolean"
	case "string":
		return "string"
	}
	return "number"
}

func shorten(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

// names reads one value and refuses a field that is there twice, or written otherwise than it is called: the decoder
// would take both.
func names(dec *json.Decoder) error {
	tok, err := dec.Token()
	if err != nil {
		return errors.New("the body is not valid JSON")
	}
	switch tok {
	case json.Delim('['):
		for dec.More() {
			if err := names(dec); err != nil {
				return err
			}
		}
		_, _ = dec.Token()
	case json.Delim('{'):
		seen := map[string]bool{}
		for dec.More() {
			tok, err := dec.Token()
			if err != nil {
				return errors.New("the body is not valid JSON")
			}
			name, _ := tok.(string)
			switch {
			case seen[name]:
				return fmt.Errorf("field %q is there twice", shorten(name))
			case !plain(name):
				return fmt.Errorf("unknown field %q", shorten(name))
			}
			seen[name] = true
			if err := names(dec); err != nil {
				return err
			}
		}
		_, _ = dec.Token()
	}
	return nil
}

// plain reports whether the name is written as all names of this API are.
func plain(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}
