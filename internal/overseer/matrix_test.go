package overseer

import (
	"testing"

	"pgregory.net/rapid"

	"writ"
)

const (
	explore = writ.Exploration
	exploit = writ.Exploitation
	neutral = writ.Neutral
	unknown = writ.Unknown
)

func TestCompatible(t *testing.T) {
	for _, c := range []struct {
		first, second writ.Strategy
		want          bool
	}{
		{explore, explore, true}, {explore, exploit, false}, {explore, neutral, true}, {explore, unknown, false},
		{exploit, explore, true}, {exploit, exploit, true}, {exploit, neutral, true}, {exploit, unknown, false},
		{neutral, explore, true}, {neutral, exploit, true}, {neutral, neutral, true}, {neutral, unknown, false},
		{unknown, explore, false}, {unknown, exploit, false}, {unknown, neutral, false}, {unknown, unknown, false},
		// Every pair must be a yes.
		{explore | exploit, explore, true}, {explore | exploit, exploit, false}, {exploit | neutral, exploit, true},
		{neutral, explore | exploit, true}, {explore, explore | exploit, false}, {explore, explore | neutral, true},
		{neutral | unknown, neutral, false}, {exploit, neutral | unknown, false},
		// Nothing resolved is unknown.
		{0, neutral, false}, {neutral, 0, false}, {0, 0, false},
	} {
		if got := Compatible(c.first, c.second); got != c.want {
			t.Errorf("Compatible(%s; %s) = %v", c.first, c.second, got)
		}
	}
}

// TestMoreStrategiesNeverHelp: adding a strategy to either side can only forbid.
func TestMoreStrategiesNeverHelp(t *testing.T) {
	set := rapid.Custom(func(t *rapid.T) writ.Strategy { return writ.Strategy(rapid.IntRange(1, 15).Draw(t, "set")) })
	rapid.Check(t, func(t *rapid.T) {
		a, b, more := set.Draw(t, "first"), set.Draw(t, "second"), set.Draw(t, "more")
		if !Compatible(a, b) && (Compatible(a|more, b) || Compatible(a, b|more)) {
			t.Fatalf("%s; %s becomes compatible with %s", a, b, more)
		}
	})
}
