package gateway

import (
	"testing"

	"writ"
	"writ/store"
)

func TestOfficialEverythingOverStdio(t *testing.T) {
	w := newWorld(t, peer{alias: "everything", reach: npm(t, "server-everything")})
	g, stop := w.start()
	cs := dial(t, g, "local:1", nil)
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) < 8 {
		t.Fatalf("%d tools, %v", len(list.Tools), err)
	}
	if got := textOf(t, call(t, cs, "echo", map[string]any{"message": "hi"})); got != "Echo: hi" {
		t.Error(got)
	}
	cs.Close()
	stop()
	rows, err := w.store.Actions(t.Context(), store.ActionFilter{})
	if err != nil || len(rows) != 1 || rows[0].State != writ.Succeeded || rows[0].Tool != "everything.echo" || rows[0].Owner != "local:1" {
		t.Errorf("%+v, %v", rows, err)
	}
	t.Log(w.log.String())
}
