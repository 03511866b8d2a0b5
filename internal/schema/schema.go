// Package schema validates a call's arguments against the JSON Schema of its tool and says where they break which rule.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Schema is a schema that is compiled when it is first needed: an agent may have a thousand tools and call three. It
// is safe for concurrent use.
type Schema struct {
	raw     json.RawMessage
	compile sync.Once
	s       *jsonschema.Schema
	err     error
}

// Cache keeps compiled schemas by their text: an agent is built for every turn, its schemas rarely change. The zero
// value is ready; it is safe for concurrent use.
type Cache struct {
	mu sync.Mutex
	m  map[string]*Schema
}

// maxSchemas bounds the cache; a full one starts anew.
const maxSchemas = 20_000

// Schema returns the schema for its JSON text; an empty text is any object. A text that is no JSON object is an error at
// once; anything else that is wrong with it is found when it is compiled.
func (c *Cache) Schema(raw json.RawMessage) (*Schema, error) {
	if len(raw) == 0 {
		raw = json.RawMessage(`{"type":"object"}`)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.m[string(raw)]; s != nil {
		return s, nil
	}
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(raw) {
		return nil, errors.New("it is not a JSON object")
	}
	if c.m == nil || len(c.m) >= maxSchemas {
		c.m = map[string]*Schema{}
	}
	s := &Schema{raw: raw}
	c.m[string(raw)] = s
	return s, nil
}

// Compile compiles the schema now and says whether it can be used. A $ref that leaves the schema is an error: nothing
// is fetched.
func (s *Schema) Compile() error {
	s.compile.Do(func() { s.s, s.err = compile(s.raw) })
	return s.err
}

var errRemoteRef = errors.New("a $ref outside the schema is not followed")

type noLoader struct{}

// Load implements jsonschema.URLLoader by refusing.
func (noLoader) Load(string) (any, error) { return nil, errRemoteRef }

func compile(raw json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	const url = "tool:///schema.json"
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}
	return c.Compile(url)
}

var english = message.NewPrinter(language.English)

// Invalid says where the arguments break which rule, as "/path: rule; …"; "" when they are valid. Nothing fits a schema
// that cannot be used.
func (s *Schema) Invalid(params json.RawMessage) string {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(params))
	if err != nil {
		return "the arguments are not valid JSON: " + err.Error()
	}
	if err := s.Compile(); err != nil {
		return "the tool's own schema cannot be used: " + err.Error()
	}
	err = s.s.Validate(v)
	var ve *jsonschema.ValidationError
	if err == nil {
		return ""
	}
	if !errors.As(err, &ve) {
		return err.Error()
	}
	var out []string
	leaves(ve, &out)
	const most = 5
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more", len(out)-most))
	}
	return strings.Join(out, "; ")
}

func leaves(e *jsonschema.ValidationError, out *[]string) {
	if len(e.Causes) == 0 {
		if _, group := e.ErrorKind.(*kind.Group); !group {
			*out = append(*out, "/"+strings.Join(e.InstanceLocation, "/")+": "+e.ErrorKind.LocalizedString(english))
		}
		return
	}
	for _, c := range e.Causes {
		leaves(c, out)
	}
}
