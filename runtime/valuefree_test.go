package runtime_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"writ"
	"writ/admission"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
)

// TestValueFree: what is said to tools and by them is in no row, no event of the history, no export and no log. It stands
// on the timeline, and nowhere else.
func TestValueFree(t *testing.T) {
	const secret = "hunter2"
	var log bytes.Buffer
	st := memory.Open()
	b := goBench(t, st, agentWith("on_unknown: continue", `, approval: {ask: always}, targets: {good: ["account:{who}"]}`),
		says(callOf("good", `{"who":"`+secret+`-in-arguments"}`)),
		says(callOf("bad", `{"who":"`+secret+`"}`)),
		says(callOf("lost", `{"who":"`+secret+`"}`)),
		says(callOf("panics", `{"who":"`+secret+`"}`)),
		says(callOf("ask", `{"who":"`+secret+`"}`)),
		says(finalDone))
	rt, err := runtime.New(runtime.Config{Store: st, Key: []byte("0123456789abcdef"), Dir: t.TempDir(), NewID: b.newID, Now: func() time.Time { return b.now },
		Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	tool := func(res writ.Result, err error) fn {
		return fn{strategy: writ.Exploitation, call: func(context.Context, string) (writ.Result, error) { return res, err }}
	}
	b.custom = funcs{"good": tool(writ.TextResult("%s in a result", secret), nil), "bad": tool(writ.ErrorResult("%s in an error", secret), nil),
		"lost": tool(writ.Result{}, errors.New(secret+" in a lost connection")), "ask": tool(writ.TextResult("%s", secret), nil),
		"panics": {strategy: writ.Exploitation, call: func(context.Context, string) (writ.Result, error) { panic(secret + " in a panic") }}}
	if out, err := b.say(rt, "the password is "+secret); err != nil || out.State != store.TurnParked {
		t.Fatalf("%+v %v", out, err)
	}
	ctx := context.Background()
	list, err := runtime.Pending(ctx, st, store.ApprovalFilter{})
	if err != nil || len(list) != 1 || !strings.Contains(string(list[0].Params), secret) {
		t.Fatalf("who decides does not see the arguments: %+v %v", list, err)
	}
	if _, err := rt.Decide(ctx, admission.Verdict{Action: list[0].Action, By: admission.Actor{ID: "boss", Operator: true}, Note: secret + " in a note"}); err != nil {
		t.Fatal(err)
	}
	if out, err := b.say(rt, ""); err != nil || out.State != store.TurnAnswered {
		t.Fatalf("%+v %v", out, err)
	}
	if err := rt.Close(); err != nil {
		t.Fatal(err)
	}
	rows, err := st.Actions(ctx, store.ActionFilter{})
	if err != nil || len(rows) != 5 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	ledger, _ := json.Marshal(rows)
	history, err := st.History(ctx, "conv", 0, 0)
	if err != nil || len(history) != 19 { // five actions, the turn, and the decision
		t.Fatalf("%d events, %v", len(history), err)
	}
	events, _ := json.Marshal(history)
	var bodies bytes.Buffer
	for _, e := range history {
		bodies.Write(e.Body)
	}
	var export bytes.Buffer
	if _, err := admission.Export(ctx, st, &export, admission.ExportFilter{}); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"the ledger": string(ledger), "the history": string(events) + bodies.String(), "the export": export.String(), "the log": log.String()} {
		if text == "" || strings.Contains(text, secret) {
			t.Errorf("%s holds what was said to a tool or by one, or nothing at all: %s", name, text)
		}
	}
}
