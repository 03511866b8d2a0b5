package participant

import (
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	for _, s := range []string{"a.b", "provision.node.x_1.service.http", "a.__private", strings.Repeat("a", 64) + ".b"} {
		if !IsAddress(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{"", "a", "a.", ".a", "a..b", "A.b", "a.-b", "a.__other", "a.b c", "a.é", strings.Repeat("a", 65) + ".b",
		"a." + strings.Repeat("b.", 1100) + "c"} {
		if IsAddress(s) {
			t.Errorf("%.40q is an address", s)
		}
	}
	for s, want := range map[string]bool{"provision.node.a": true, "provision.a": true, "provision.": false, "provision": false,
		"backend.participant-runtime": false, "xprovision.node.a": false} {
		if IsRuntimeAddress(s) != want {
			t.Errorf("%q: runtime address %v", s, !want)
		}
	}
	for s, want := range map[string]bool{"a": true, "0-_": true, "_a": false, "-a": false, "a.b": false, "": false} {
		if IsSegment(s) != want {
			t.Errorf("%q: segment %v", s, !want)
		}
	}
}

// TestSegmentKeepsNamesApart: whatever a name is, its part of an address is one, and it is the name's own.
func TestSegmentKeepsNamesApart(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a", "A", "a.b", "a-b", "a b", "a_b", "_a", "-a", "", " ", "é", "É", "x", strings.Repeat("a", 64),
		strings.Repeat("a", 65), strings.Repeat("a", 66)} {
		s := Segment(name)
		if !IsSegment(s) {
			t.Errorf("%q becomes %q", name, s)
		}
		if other, twice := seen[s]; twice {
			t.Errorf("%q and %q both become %q", name, other, s)
		}
		seen[s] = name
	}
}

// TestDerive: an agent's tools, with a target each, a template, or nothing.
func TestDerive(t *testing.T) {
	c := Derive("main", "x@1", 3, 8, []Callable{{Connection: "g", Name: "fixed", Targets: []string{"account:main"}},
		{Connection: "g", Name: "templated", Templated: true}, {Connection: "g", Name: "plain"}})
	if c.Total != 8 || c.Concurrent != 8 || len(c.Offers) != 3 {
		t.Errorf("%+v", c)
	}
	for i, allowed := range [][2]string{{"account:main", "tool.g.fixed"}, {Target("d1"), "tool.g.templated"}, {"tool.g.plain", Target("d1")}} {
		if b := c.Bindings[i]; !b.AllowsTarget(allowed[0]) || b.AllowsTarget(allowed[1]) || b.AllowsTarget("target.") {
			t.Errorf("%s: allows %v %v", b.Contract, b.Targets, b.Derived)
		}
	}
}
