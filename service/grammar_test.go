package service_test

import (
	"bytes"
	"sort"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"writ/config"
	"writ/service"
)

func TestGrammarIsTheConfigurationsTable(t *testing.T) {
	var names []string
	for _, c := range service.Callables() {
		names = append(names, c.Spec.Name)
		if got, ok := config.Callable(c.Operation); !ok || got != c.Spec.Name {
			t.Errorf("operation %s: configuration says %q, the grammar %q", c.Operation, got, c.Spec.Name)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.Spec.Schema))
		if err != nil {
			t.Fatalf("%s: %v", c.Spec.Name, err)
		}
		comp := jsonschema.NewCompiler()
		if err := comp.AddResource("x", doc); err != nil {
			t.Fatal(err)
		}
		if _, err := comp.Compile("x"); err != nil {
			t.Errorf("%s: %v", c.Spec.Name, err)
		}
		if c.Spec.Declared != nil {
			t.Errorf("%s declares traits", c.Spec.Name)
		}
	}
	if len(names) != 10 || !sort.StringsAreSorted(names) {
		t.Errorf("callables %v", names)
	}
}

func TestOnlyAllowedOperations(t *testing.T) {
	got := service.ForOperations([]string{"object.get", "object.search"}, false)
	if len(got) != 2 || got[0].Name != "get_object" || got[1].Name != "search_objects" {
		t.Errorf("got %v", got)
	}
	if len(service.ForOperations(nil, true)) != 10 {
		t.Error("all is not all")
	}
}
