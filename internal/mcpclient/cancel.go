package mcpclient

import (
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// The SDK tells the server of a cancelled request in its own time. The end of the session right after must not be faster:
// the server would go on working for nobody.

// maxCancels bounds what is remembered of cancellations that nobody has waited for.
const maxCancels = 1000

// cancelling notes that a cancellation is under way.
func (r *remote) cancelling(id jsonrpc.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancels[id] != nil { // it was faster
		delete(r.cancels, id)
		return
	}
	r.noteCancel(id, make(chan struct{}))
}

// cancelled notes that a cancellation has been sent, or cannot be.
func (r *remote) cancelled(id jsonrpc.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if under := r.cancels[id]; under != nil {
		close(under)
		delete(r.cancels, id)
		return
	}
	sent := make(chan struct{})
	close(sent)
	r.noteCancel(id, sent)
}

// noteCancel is called with r.mu held.
func (r *remote) noteCancel(id jsonrpc.ID, c chan struct{}) {
	if r.cancels == nil {
		r.cancels = map[jsonrpc.ID]chan struct{}{}
	}
	if len(r.cancels) < maxCancels {
		r.cancels[id] = c
	}
}

// awaitCancels waits for the cancellations under way, no longer than the grace.
func (r *remote) awaitCancels() {
	r.mu.Lock()
	var under []chan struct{}
	for _, c := range r.cancels {
		under = append(under, c)
	}
	r.mu.Unlock()
	if len(under) == 0 {
		return
	}
	t := time.NewTimer(r.cfg.Grace)
	defer t.Stop()
	for _, c := range under {
		select {
		case <-c:
		case <-t.C:
			return
		}
	}
}
