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

// Schema is a compiled schema, safe for concurrent use.
type Schema struct{ s *jsonschema.Schema }

// Cache keeps compiled schemas by their text: an agent is built for every turn, its schemas rarely change. The zero
// value is ready; it is safe for concurrent use.
type Cache struct {
	mu sync.Mutex
	m  map[string]*Schema
}

// maxSchemas bounds the cache; a full one starts anew.
const maxSchemas = 20_000

// Compile returns the schema for its JSON text; an empty text is any object. A $ref that leaves the schema is an error:
// nothing is fetched.
func (c *Cache) Compile(raw json.RawMessage) (*Schema, error) {
	c.mu.Lock()
	s := c.m[string(raw)]
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := compile(raw)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= maxSchemas {
		c.m = map[string]*Schema{}
	}
	c.m[string(raw)] = s
	return s, nil
}

var errRemoteRef = errors.New("a $ref outside the schema is not followed")

type noLoader struct{}

// Load implements jsonschema.URLLoader by refusing.
func (noLoader) Load(string) (any, error) { return nil, errRemoteRef }

func compile(raw json.RawMessage) (*Schema, error) {
	if len(raw) == 0 {
		raw = json.RawMessage(`{"type":"object"}`)
	}
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
	s, err := c.Compile(url)
	if err != nil {
		return nil, err
	}
	return &Schema{s}, nil
}

var english = message.NewPrinter(language.English)

// Invalid says where the arguments break which rule, as "/path: rule; …"; "" when they are valid.
func (s *Schema) Invalid(params json.RawMessage) string {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(params))
	if err != nil {
		return "the arguments are not valid JSON: " + err.Error()
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
