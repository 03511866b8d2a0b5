package config

import (
	"slices"
	"strings"

	"writ/trait"
)

// operations pairs each operation of the named-service grammar with the callable that the agent sees.
var operations = []struct{ operation, callable string }{
	{"provider.about", "provider_about"},
	{"provider.capabilities", "provider_capabilities"},
	{"object.list", "list_objects"},
	{"object.search", "search_objects"},
	{"object.get", "get_object"},
	{"object.schema", "object_schema"},
	{"object.upsert", "upsert_object"},
	{"object.delete", "delete_object"},
	{"object.host_file", "host_file"},
	{"object.action", "object_action"},
}

// Callable returns the callable of a named-service operation: "search_objects" for "object.search".
func Callable(operation string) (string, bool) {
	for _, o := range operations {
		if o.operation == operation {
			return o.callable, true
		}
	}
	return "", false
}

func operationNames() (ops, callables []string) {
	for _, o := range operations {
		ops, callables = append(ops, o.operation), append(callables, o.callable)
	}
	return ops, callables
}

// namespaces checks the namespaces of a named-service connection. allowed takes operations, tool_traits callables.
func (c *checker) namespaces(conn *builtConn, s *connShape) {
	conn.callable, conn.strict = map[string]bool{}, true
	if s.Namespaces == nil || len(s.Namespaces.Entries) == 0 {
		c.report.errorf(s.Pos, "name the namespaces the agent may use", "%s has no namespaces", conn.path)
		conn.strict = false
		return
	}
	ops, _ := operationNames()
	for i := range s.Namespaces.Entries {
		e := &s.Namespaces.Entries[i]
		path := conn.path + ".namespaces." + e.Key
		ns := Namespace{Pos: e.Pos}
		if !e.Val.Allowed.present() {
			c.report.errorf(e.Pos, "list operations, or write ['*'] for all the provider has", "%s has no allowed", path)
			conn.strict = false
		}
		own := map[string]bool{}
		ns.Allowed, ns.AllowAll = c.names(path+".allowed", e.Val.Allowed.V, func(v val[string]) {
			callable, ok := Callable(v.V)
			if !ok {
				c.report.errorf(v.Pos, operationHint(v.V, ops), "%s.allowed: unknown operation %s", path, quote(v.V))
			}
			own[callable] = true
		})
		if ns.AllowAll || e.Val.Allowed.Bad {
			_, callables := operationNames()
			for _, callable := range callables {
				own[callable] = true
			}
		}
		for callable := range own {
			conn.callable[callable] = true
		}
		scope := *conn
		scope.callable, scope.path, scope.strict = own, path, e.Val.Allowed.present()
		ns.Traits = c.traits(&scope, e.Val.ToolTraits)
		conn.Namespaces[e.Key] = ns
	}
}

func operationHint(name string, ops []string) string {
	for _, o := range operations {
		if o.callable == name {
			return "allowed takes operations: write " + o.operation
		}
	}
	return trait.DidYouMean(name, ops)
}

// knows checks that a key of a per-tool mapping names a tool of the ceiling.
func (c *checker) knows(conn *builtConn, what, key string, pos Pos, anyToo bool) bool {
	path := conn.path + "." + what
	if key == trait.Any {
		if !anyToo {
			c.report.errorf(pos, "name the tool", "%s has the key '*'", path)
		}
		return anyToo
	}
	if conn.Kind == KindNamedService {
		return c.knowsCallable(conn, path, key, pos)
	}
	if rest, ok := strings.CutPrefix(key, conn.Alias+"."); ok && conn.Alias != "" && !slices.Contains(conn.Allowed, key) {
		c.report.errorf(pos, "keys are without the alias: write "+rest, "%s has the key %s", path, quote(key))
		return false
	}
	if conn.strict && !slices.Contains(conn.Allowed, key) {
		hint := "add it to allowed"
		if near := trait.Nearest(key, conn.Allowed); near != "" {
			hint = "did you mean " + near + "?"
		}
		c.report.errorf(pos, hint, "%s has the key %s, which allowed does not have", path, quote(key))
		return false
	}
	if _, ok := conn.names[key]; !ok {
		conn.names[key] = pos
	}
	return true
}

func (c *checker) knowsCallable(conn *builtConn, path, key string, pos Pos) bool {
	_, callables := operationNames()
	if callable, isOperation := Callable(key); isOperation {
		c.report.errorf(pos, "its keys are callables: write "+callable, "%s has the operation %s", path, quote(key))
		return false
	}
	if !slices.Contains(callables, key) {
		c.report.errorf(pos, trait.DidYouMean(key, callables), "%s: unknown callable %s", path, quote(key))
		return false
	}
	if conn.strict && !conn.callable[key] {
		c.report.errorf(pos, "allow its operation", "%s has the key %s, whose operation is not allowed", path, quote(key))
		return false
	}
	return true
}
