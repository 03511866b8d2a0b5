package participant

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBindingsAreTheJoin: whatever is authored, right or wrong, a binding exists exactly where an affordance, its
// specification, the policy and the participant all have it. The expectation is written down the slow way.
func TestBindingsAreTheJoin(t *testing.T) {
	const cases = 3000
	some := 0
	for seed := range uint64(cases) {
		a := randomAuthored(rand.New(rand.NewPCG(seed, 1)))
		c := &compiler{Authored: a}
		got := map[string]bool{}
		for _, p := range c.all() {
			for _, b := range p.Bindings {
				key := p.Name + " " + b.Affordance + " " + b.Contract
				if got[key] {
					t.Fatalf("case %d: %s is bound twice", seed, key)
				}
				got[key] = true
				for _, boundary := range b.Boundaries {
					got[key+" "+boundary] = true
				}
				if len(b.Targets) == 0 || b.Participant != p.Participant {
					t.Fatalf("case %d: %+v", seed, b)
				}
			}
		}
		if d := cmp.Diff(slowJoin(a), got); d != "" {
			t.Fatalf("case %d: %s\n%+v", seed, d, a)
		}
		some += min(1, len(got))
	}
	if some < cases/4 {
		t.Errorf("only %d cases had a binding", some)
	}
}

func randomAuthored(r *rand.Rand) Authored {
	all := []string{"a", "b"}
	often := func() bool { return r.IntN(5) > 0 }
	list := func(absent int) []string { // absent of 4 are not written
		if r.IntN(4) < absent {
			return nil
		}
		return slices.DeleteFunc(slices.Clone(all), func(string) bool { return r.IntN(4) == 0 })
	}
	a := Authored{Specifications: map[string]Specification{}, Contracts: map[string]Contract{}, Boundaries: map[string]View{},
		Participants: map[string]Actor{}, Runtimes: map[string]Manifest{"harness": manifest()}}
	for _, n := range all {
		if often() {
			a.Participants[n] = Actor{Role: all[r.IntN(2)], Contracts: list(2), Boundaries: list(2)}
		}
		a.Contracts[n] = Contract{Effects: [][]string{{"nothing"}}}
		if often() {
			a.Contracts[n] = Contract{Effects: [][]string{{service}}}
		}
		var v View
		for _, s := range all {
			for _, f := range all {
				if often() {
					v.Hidden = append(v.Hidden, AffordanceRef(s, f))
				}
			}
		}
		a.Boundaries[n] = v
		s := Specification{Participants: list(1), Roles: list(2), Contracts: list(2), Boundaries: list(2),
			Affordances: map[string]Affordance{}}
		if often() {
			s.Autonomous = &Policy{Participants: list(1)}
		}
		for _, f := range all {
			s.Affordances[f] = Affordance{Contracts: list(0), Boundaries: list(0), Participants: list(3), Roles: list(3)}
		}
		a.Specifications[n] = s
	}
	return a
}

// slowJoin is the rule of the document, without any of the compiler's code.
func slowJoin(a Authored) map[string]bool {
	in := slices.Contains[[]string]
	within := func(list []string, n string) bool { return list == nil || in(list, n) }
	named := func(names, roles []string, p string) bool { return in(names, p) || in(roles, a.Participants[p].Role) }
	member := func(s Specification, p string) bool {
		if s.Participants != nil || s.Roles != nil {
			return named(s.Participants, s.Roles, p)
		}
		for _, f := range s.Affordances {
			if named(f.Participants, f.Roles, p) {
				return true
			}
		}
		return s.Autonomous != nil && in(s.Autonomous.Participants, p)
	}
	owns := func(s Specification, p string) bool {
		if s.Autonomous == nil || !member(s, p) {
			return false
		}
		if s.Autonomous.Participants != nil {
			return in(s.Autonomous.Participants, p)
		}
		return in(s.Participants, p)
	}
	out := map[string]bool{}
	for p, actor := range a.Participants {
		for _, sn := range []string{"a", "b"} { // the first specification that owns it
			s := a.Specifications[sn]
			if !owns(s, p) {
				continue
			}
			for fn, f := range s.Affordances {
				if (f.Participants != nil || f.Roles != nil) && !named(f.Participants, f.Roles, p) {
					continue
				}
				for _, c := range f.Contracts {
					if !within(s.Contracts, c) || !within(actor.Contracts, c) || len(a.Contracts[c].Effects) == 0 || a.Contracts[c].Effects[0][0] != service {
						continue
					}
					for _, b := range f.Boundaries {
						if within(s.Boundaries, b) && within(actor.Boundaries, b) && in(a.Boundaries[b].Hidden, AffordanceRef(sn, fn)) {
							key := p + " " + AffordanceAddress(sn, fn) + " " + ContractAddress(c)
							out[key], out[key+" "+BoundaryAddress(b)] = true, true
						}
					}
				}
			}
			break
		}
	}
	return out
}
