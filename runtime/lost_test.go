package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"writ"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
)

// losing refuses every write that settles an action as succeeded.
type losing struct{ store.Store }

func (l losing) Apply(ctx context.Context, b *store.Batch) error {
	for _, a := range b.Actions {
		if a.State == writ.Succeeded {
			return errors.New("disk full")
		}
	}
	return l.Store.Apply(ctx, b)
}

func TestNothingStartsAfterALostOutcome(t *testing.T) {
	var ran []string
	f := func(n string) fn {
		return fn{strategy: writ.Exploitation, call: func(context.Context, string) (writ.Result, error) {
			ran = append(ran, n)
			return writ.TextResult("ok"), nil
		}}
	}
	b := goBench(t, losing{memory.Open()}, "react: {}\n"+fmt.Sprintf(oneConnection, ""), says(callOf("a", `{}`)+callOf("b", `{}`)+callOf("c", `{}`)), says(finalDone))
	rt := b.runtime()
	b.custom = funcs{"a": f("a"), "b": f("b"), "c": f("c")}
	out, err := b.say(rt, "go")
	t.Logf("%+v %v ran %v", out.State, err, ran)
	if len(ran) > 1 {
		t.Errorf("after the outcome of a could not be recorded, %v ran too", ran[1:])
	}
	_ = runtime.EventAnswer
}
