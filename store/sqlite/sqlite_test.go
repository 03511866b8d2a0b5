package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"writ/store"
	"writ/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (store.Store, func() store.Store) {
		dir := t.TempDir()
		s := open1(t, dir)
		return s, func() store.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return open1(t, dir)
		}
	})
}

func open1(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newBatch(id string) *store.Batch { return &store.Batch{ID: id, Time: time.Unix(1, 0)} }

func TestSecondOpenIsRefusedAndReadersAreNot(t *testing.T) {
	dir := t.TempDir()
	s := open1(t, dir)
	if _, err := Open(context.Background(), dir); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "process") {
		t.Errorf("second open: %v", err)
	}
	if err := s.Apply(context.Background(), newBatch("b1")); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReadOnly(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if ok, err := r.Applied(context.Background(), "b1"); !ok || err != nil {
		t.Errorf("reading beside the holder: %v %v", ok, err)
	}
	if err := r.Apply(context.Background(), newBatch("b2")); err == nil {
		t.Error("a read-only store wrote")
	}
	if _, err := OpenReadOnly(context.Background(), t.TempDir()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("reading an empty directory: %v", err)
	}
}

func TestReadOnlyAfterTheHolderLeft(t *testing.T) {
	dir := t.TempDir()
	s := open1(t, dir)
	if err := s.Apply(context.Background(), newBatch("b1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReadOnly(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if ok, err := r.Applied(context.Background(), "b1"); !ok || err != nil {
		t.Errorf("reading a closed database: %v %v", ok, err)
	}
}

func TestNewerDatabaseIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open1(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if _, err := Open(context.Background(), dir); !errors.Is(err, ErrNewer) {
		t.Errorf("open: %v", err)
	}
	if _, err := OpenReadOnly(context.Background(), dir); !errors.Is(err, ErrNewer) {
		t.Errorf("open read-only: %v", err)
	}
}

func TestSchemaVersionIsTheNewestFile(t *testing.T) {
	if SchemaVersion() != 2 {
		t.Errorf("schema version %d", SchemaVersion())
	}
}

// gather runs fn while the writer is held up, so that all batches it submits land in one group.
func gather(t *testing.T, s *Store, n int, mk func(i int) *store.Batch) []error {
	t.Helper()
	group := make([]*request, n)
	for i := range group {
		group[i] = &request{batch: mk(i), done: make(chan struct{})}
	}
	// The loop goroutine is idle; running the group here is what it would do, with the composition fixed.
	s.write.run(context.Background(), group)
	errs := make([]error, n)
	for i, r := range group {
		errs[i] = r.err
	}
	return errs
}

func TestAFailingCommitIsReadBack(t *testing.T) {
	boom := errors.New("disk I/O error")
	for _, c := range []struct {
		name  string
		first func(ctx context.Context, w *writer) error // what the first COMMIT does
	}{
		{"not written", func(ctx context.Context, w *writer) error { return boom }},
		{"written, answer lost", func(ctx context.Context, w *writer) error {
			if err := w.exec(ctx, "COMMIT"); err != nil {
				return err
			}
			return boom
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open1(t, t.TempDir())
			commits := 0
			s.write.commit = func(ctx context.Context) error {
				if commits++; commits == 1 {
					return c.first(ctx, s.write)
				}
				return s.write.exec(ctx, "COMMIT")
			}
			errs := gather(t, s, 3, func(i int) *store.Batch { return newBatch(fmt.Sprint("b", i)) })
			for i, err := range errs {
				ok, rerr := s.Applied(context.Background(), fmt.Sprint("b", i))
				if err != nil || !ok || rerr != nil {
					t.Errorf("batch %d: answer %v, written %v (%v)", i, err, ok, rerr)
				}
			}
			var rows int
			if err := s.read.QueryRow(`SELECT count(*) FROM batches`).Scan(&rows); err != nil || rows != 3 {
				t.Errorf("%d rows, %v: each batch exactly once", rows, err)
			}
		})
	}
}

func TestAFailingCommitOfASingleBatchIsAnError(t *testing.T) {
	s := open1(t, t.TempDir())
	s.write.commit = func(context.Context) error { return errors.New("disk full") }
	errs := gather(t, s, 1, func(int) *store.Batch { return newBatch("b") })
	if errs[0] == nil || errors.Is(errs[0], store.ErrUnknown) {
		t.Errorf("answer %v, want an error that says it was not written", errs[0])
	}
	if ok, _ := s.Applied(context.Background(), "b"); ok {
		t.Error("it was written")
	}
}

func TestAnErrorOfOneBatchDoesNotFailTheOthers(t *testing.T) {
	s := open1(t, t.TempDir())
	// A statement that fails with an error that is neither a conflict nor a constraint.
	if err := s.write.exec(context.Background(), "DROP TABLE documents"); err != nil {
		t.Fatal(err)
	}
	errs := gather(t, s, 3, func(i int) *store.Batch {
		b := newBatch(fmt.Sprint("b", i))
		if i == 1 {
			b.Documents = []store.Document{{Digest: "d", Body: []byte("x")}}
		}
		return b
	})
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("neighbours: %v, %v", errs[0], errs[2])
	}
	if errs[1] == nil || errors.Is(errs[1], store.ErrConflict) {
		t.Errorf("the bad one: %v", errs[1])
	}
}

func TestGroupsShareCommits(t *testing.T) {
	s := open1(t, t.TempDir())
	var mu sync.Mutex
	commits := 0
	inner := s.write.commit
	s.write.commit = func(ctx context.Context) error {
		mu.Lock()
		commits++
		mu.Unlock()
		return inner(ctx)
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := s.Apply(context.Background(), newBatch(fmt.Sprint("b", i))); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if commits >= 200 {
		t.Errorf("%d commits for 200 concurrent batches", commits)
	}
}
