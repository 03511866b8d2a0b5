package gateway

import (
	"strings"
	"testing"

	"writ"
)

// TestTargets: a template keeps apart what two calls touch, and the ledger has no argument and no result, only keyed
// digests; the timeline has both.
func TestTargets(t *testing.T) {
	hung := make(chan string, 4)
	reach, _ := inProcess(t, t.TempDir(), hung)
	w := newWorld(t, peer{alias: "peer", reach: reach, yaml: "targets: {hang: ['box:{what}'], do: ['box:{what}', 'shelf:one']}\nlimits: {hang: {timeout: 100ms}}\n"})
	g, stop := w.start()
	cs := dial(t, g, "local:1", nil)
	wantText(t, call(t, cs, "hang", map[string]any{"what": "s3cret"}), true, "unknown")
	wantText(t, call(t, cs, "do", map[string]any{"what": "s3cret"}), true, "not executed", "an earlier action on the same target")
	wantText(t, call(t, cs, "do", map[string]any{"what": "0ther"}), false, "done 0ther")
	wantText(t, call(t, cs, "do", nil), true, "what it touches cannot be told")
	cs.Close()
	stop()
	row, other := w.one("peer.hang"), w.one("peer.do")
	if row.State != writ.Indeterminate || len(row.Targets) != 1 || len(other.Targets) != 2 || other.Targets[1] != "shelf:one" || row.Targets[0] == other.Targets[0] {
		t.Errorf("%v, %v", row.Targets, other.Targets)
	}
	events, err := w.store.History(t.Context(), other.Conversation, 0, 0)
	if err != nil || len(events) == 0 {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"ledger": jsonOf(w.rows()), "history": jsonOf(events)} {
		for _, value := range []string{"s3cret", "0ther", "done"} {
			if strings.Contains(text, value) {
				t.Errorf("%q is in the %s: %s", value, what, text)
			}
		}
	}
	blocks, err := w.store.Blocks(t.Context(), other.Conversation, 0, 0)
	if text := jsonOf(blocks); err != nil || len(blocks) < 4 {
		t.Errorf("%d blocks, %v: %s", len(blocks), err, text)
	}
	var bodies strings.Builder
	for _, b := range blocks {
		bodies.Write(b.Body)
	}
	for _, value := range []string{"s3cret", "0ther", "done 0ther"} {
		if !strings.Contains(bodies.String(), value) {
			t.Errorf("%q is not on the timeline", value)
		}
	}
}
