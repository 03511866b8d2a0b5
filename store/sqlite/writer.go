package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"writ/store"
)

// groupMax bounds how many batches share one commit.
const groupMax = 256

// keepBatches is how long a batch id can be read back after its commit.
const keepBatches = 24 * time.Hour

// writer owns the one write connection. Batches that wait at the same time share one COMMIT and so one fsync; each
// has a savepoint of its own, and none is answered, conflicts included, before that COMMIT returned.
type writer struct {
	db   *sql.DB
	conn *sql.Conn
	st   statements
	ch   chan *request
	done chan struct{}

	mu     sync.RWMutex // held for reading while sending on ch, for writing while closing it
	closed bool

	// commit is the COMMIT statement, a seam for tests of an unanswered commit.
	commit func(ctx context.Context) error
}

type request struct {
	batch *store.Batch
	err   error
	done  chan struct{}
}

func newWriter(ctx context.Context, db *sql.DB) (*writer, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{db: db, conn: conn, ch: make(chan *request, groupMax), done: make(chan struct{})}
	if err := w.st.prepare(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, `DELETE FROM batches WHERE time < ?`, micros(time.Now().Add(-keepBatches))); err != nil {
		conn.Close()
		return nil, err
	}
	w.commit = func(ctx context.Context) error { return w.step(ctx, w.st.commit) }
	go w.loop()
	return w, nil
}

func (w *writer) apply(ctx context.Context, b *store.Batch) error {
	r := &request{batch: b, done: make(chan struct{})}
	w.mu.RLock()
	if w.closed {
		w.mu.RUnlock()
		return store.ErrClosed
	}
	select {
	case w.ch <- r:
		w.mu.RUnlock()
	case <-ctx.Done():
		w.mu.RUnlock()
		return ctx.Err()
	}
	<-r.done // once handed over, the outcome is worth waiting for: it is a commit away
	return r.err
}

func (w *writer) close() error {
	w.mu.Lock()
	already := w.closed
	if !already {
		w.closed = true
		close(w.ch)
	}
	w.mu.Unlock()
	<-w.done
	if already {
		return nil
	}
	return errors.Join(w.conn.Close(), w.db.Close())
}

func (w *writer) loop() {
	defer close(w.done)
	for first := range w.ch {
		group := []*request{first}
	collect:
		for len(group) < groupMax {
			select {
			case r, ok := <-w.ch:
				if !ok {
					break collect
				}
				group = append(group, r)
			default:
				break collect
			}
		}
		w.run(context.Background(), group)
		for _, r := range group {
			close(r.done)
		}
	}
}

// run writes the group in one transaction. Any error but a batch's own conflict rolls all back, since SQLite may have
// rolled back by itself (FULL, IOERR, NOMEM, BUSY, INTERRUPT), and runs each batch alone.
func (w *writer) run(ctx context.Context, group []*request) {
	err := w.try(ctx, group)
	if err == nil {
		return
	}
	if len(group) == 1 {
		group[0].err = err
		return
	}
	for _, r := range group {
		r.err = nil
		if errors.Is(err, store.ErrUnknown) {
			// The commit's answer got lost: what is there must not be written again.
			if there, rerr := w.there(ctx, r.batch.ID); rerr != nil || there {
				if rerr != nil {
					r.err = fmt.Errorf("%w: %w", store.ErrUnknown, rerr)
				}
				continue
			}
		}
		if e := w.try(ctx, []*request{r}); e != nil {
			r.err = e
		}
	}
}

// try writes the group and commits. A nil return means that each request carries its own outcome.
func (w *writer) try(ctx context.Context, group []*request) error {
	if err := w.step(ctx, w.st.begin); err != nil {
		return fmt.Errorf("sqlite: begin: %w", err)
	}
	if len(group) == 1 {
		return w.alone(ctx, group[0])
	}
	for _, r := range group {
		if err := w.one(ctx, r); err != nil {
			_ = w.exec(ctx, "ROLLBACK") // fails when SQLite has rolled back by itself
			return err
		}
	}
	if err := w.commit(ctx); err != nil {
		return w.unanswered(ctx, group, err)
	}
	return nil
}

// alone runs a group of one: the transaction is its savepoint.
func (w *writer) alone(ctx context.Context, r *request) error {
	err := w.st.write(ctx, r.batch)
	if err == nil {
		if err := w.commit(ctx); err != nil {
			return w.unanswered(ctx, []*request{r}, err)
		}
		return nil
	}
	_ = w.exec(ctx, "ROLLBACK") // fails when SQLite has rolled back by itself
	if c := ownConflict(err); c != nil {
		r.err = c
		return nil
	}
	return err
}

// unanswered settles what an erring COMMIT did, by the batch ids it should have written.
func (w *writer) unanswered(ctx context.Context, group []*request, cause error) error {
	_ = w.exec(ctx, "ROLLBACK") // fails when nothing is open any more
	written := 0
	for _, r := range group {
		if r.err != nil {
			continue // a conflict wrote nothing
		}
		there, err := w.there(ctx, r.batch.ID)
		if err != nil {
			return fmt.Errorf("%w: commit: %w; reading back: %w", store.ErrUnknown, cause, err)
		}
		if there {
			written++
		}
	}
	if written > 0 {
		return nil // one transaction: all of it is durable
	}
	return fmt.Errorf("sqlite: commit: %w", cause)
}

func (w *writer) there(ctx context.Context, id string) (bool, error) {
	var n int
	err := w.conn.QueryRowContext(ctx, `SELECT count(*) FROM batches WHERE id = ?`, id).Scan(&n)
	return n > 0, err
}

// one runs a batch inside its savepoint. Its own conflict is kept on the request; any other error is the group's.
func (w *writer) one(ctx context.Context, r *request) error {
	if err := w.step(ctx, w.st.savepoint); err != nil {
		return fmt.Errorf("sqlite: savepoint: %w", err)
	}
	err := w.st.write(ctx, r.batch)
	if err == nil {
		return w.step(ctx, w.st.release)
	}
	conflict := ownConflict(err)
	if conflict == nil {
		return err
	}
	r.err = conflict
	if err := w.exec(ctx, "ROLLBACK TO batch"); err != nil {
		return fmt.Errorf("sqlite: rollback to savepoint: %w", err)
	}
	return w.step(ctx, w.st.release)
}

// ownConflict is the conflict that an error means, or nil when the error is not the batch's own.
func ownConflict(err error) error {
	var conflict *store.Conflict
	if errors.As(err, &conflict) {
		return conflict
	}
	if c := constraint(err); c != nil {
		return c
	}
	return nil
}

func (w *writer) step(ctx context.Context, s *sql.Stmt) error {
	_, err := s.ExecContext(ctx)
	return err
}

func (w *writer) exec(ctx context.Context, q string) error {
	_, err := w.conn.ExecContext(ctx, q)
	return err
}

// constraint turns a violated constraint into the conflict it means. The part is in the wrapping that statements.write
// adds; the driver's code alone decides. A value that no row may have (CHECK, NOT NULL) is nobody's conflict.
func constraint(err error) *store.Conflict {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return nil
	}
	c := &store.Conflict{Part: "batch", Why: "already exists"}
	switch se.Code() {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		c.Why = "what it belongs to is not there"
	default:
		return nil
	}
	var p *partError
	if errors.As(err, &p) {
		c.Part, c.ID = p.part, p.id
	}
	return c
}
