// Package service is the grammar of named services: one set of callables over the objects of any namespace. This
// version ships the callables' schemas, so that `writ explain` judges calls by their namespace; providers come later.
package service

import (
	"encoding/json"
	"strings"

	"writ"
)

// Callable is one callable of the grammar and the operation that configuration allows it by.
type Callable struct {
	Operation string
	Spec      writ.ToolSpec
}

var grammar = []struct{ operation, name, description, properties, required string }{
	{"object.delete", "delete_object", "Delete one object.", object + `,"base_revision":{"type":"string"},"payload":{"type":["object","string"]}`, ""},
	{"object.get", "get_object", "Get one object whole.", object + `,"include":{"type":["array","string"],"items":{"type":"string"},"maxItems":50}`, ""},
	{"object.host_file", "host_file", "Give a file a home beside an object.", object + `,"file_ref":{"type":"string"},"filename":{"type":"string"},"mime":{"type":"string"},"description":{"type":"string"},"payload":{"type":["object","string"]}`, `,"file_ref"`},
	{"object.list", "list_objects", "List the objects of a collection, page by page.", `"collection":{"type":"string"},"cursor":{"type":"string"},"limit":{"type":"integer","minimum":1,"maximum":100},"filters":{"type":["object","string"]}`, ""},
	{"object.action", "object_action", "Run a named action of an object.", object + `,"action":{"type":"string"},"payload":{"type":["object","string"]}`, ""},
	{"object.schema", "object_schema", "Describe a kind of object: what an upsert must hold.", `"object_kind":{"type":"string"},"object_ref":{"type":"string"}`, ""},
	{"provider.about", "provider_about", "What the namespace holds and how to use it.", "", ""},
	{"provider.capabilities", "provider_capabilities", "Which operations and actions the provider has.", "", ""},
	{"object.search", "search_objects", "Search the objects of a namespace.", `"query":{"type":"string"},"limit":{"type":"integer","minimum":1,"maximum":50},"cursor":{"type":"string"},"filters":{"type":["object","string"]},"search_mode":{"type":"string"}`, `,"query"`},
	{"object.upsert", "upsert_object", "Create an object, or change it.", object + `,"object_json":{"type":["object","string"]},"base_revision":{"type":"string"},"idempotency_key":{"type":"string"}`, `,"object_json"`},
}

const object = `"object_ref":{"type":"string"},"object_id":{"type":"string"}`

// Callables lists the grammar, sorted by callable name. The callables declare no traits: unconfigured, they are unknown.
func Callables() []Callable {
	out := make([]Callable, len(grammar))
	for i, g := range grammar {
		props := `"namespace":{"type":"string","minLength":1}`
		if g.properties != "" {
			props += "," + g.properties
		}
		schema := `{"type":"object","additionalProperties":false,"required":["namespace"` + g.required + `],"properties":{` + props + `}}`
		out[i] = Callable{Operation: g.operation, Spec: writ.ToolSpec{Name: g.name, Description: g.description, Schema: json.RawMessage(schema)}}
	}
	return out
}

// ForOperations lists the callables that a connection offers when its namespaces allow these operations; all means
// every one of them.
func ForOperations(operations []string, all bool) []writ.ToolSpec {
	var out []writ.ToolSpec
	for _, c := range Callables() {
		if all || contains(operations, c.Operation) {
			out = append(out, c.Spec)
		}
	}
	return out
}

func contains(list []string, want string) bool {
	for _, s := range list {
		if strings.TrimSpace(s) == want {
			return true
		}
	}
	return false
}
