package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"writ"
	"writ/store"
	"writ/store/memory"
)

// brief fails the first three writes that settle as succeeded, at once and without effect; then the disk is well again.
type brief struct {
	store.Store
	n *int
}

func (l brief) Apply(ctx context.Context, b *store.Batch) error {
	for _, a := range b.Actions {
		if a.State == writ.Succeeded && *l.n < 3 {
			*l.n++
			return errors.New("disk full")
		}
	}
	return l.Store.Apply(ctx, b)
}

func TestAKnownOutcomeIsKept(t *testing.T) {
	n := 0
	st := brief{memory.Open(), &n}
	b := goBench(t, st, "react: {}\n"+fmt.Sprintf(oneConnection, ""), says(callOf("a", `{}`)), says(finalDone))
	rt := b.runtime()
	b.custom = funcs{"a": {strategy: writ.Exploitation, call: func(context.Context, string) (writ.Result, error) {
		return writ.TextResult("ok"), nil
	}}}
	out, err := b.say(rt, "go")
	row := b.rows()[0]
	t.Logf("%s %v: row %s (%s)", out.State, err, row.State, row.Failure)
	if row.State != writ.Succeeded {
		t.Error("the tool answered; the store was down for three writes in a row without a pause")
	}
}
