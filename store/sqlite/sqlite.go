// Package sqlite is the store of one machine: a single file in a data directory, pure Go, WAL, synchronous=FULL, with
// one writer that groups concurrent batches into shared commits.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite"

	"writ/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrInUse means that another process holds the data directory for writing.
var ErrInUse = errors.New("sqlite: the data directory is in use")

// ErrNewer means that the file was written by a newer version of Writ.
var ErrNewer = errors.New("sqlite: the database is newer than this program")

// Store is the SQLite driver. It implements store.Store.
type Store struct {
	read   *sql.DB
	write  *writer // nil when opened read-only
	lock   *os.File
	readDB *sql.DB
}

// File is the name of the database inside a data directory.
const File = "writ.db"

// Open takes the data directory for writing, makes it when absent, and brings its schema up to date. The directory is
// locked until Close; a second Open, also from another process, gives ErrInUse with the holder's process id.
func Open(ctx context.Context, dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("sqlite: making data directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, filepath.Join(dir, File), lock)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return s, nil
}

func open(ctx context.Context, path string, lock *os.File) (*Store, error) {
	// Arguments and results are in it: for its owner only, whatever the directory allows. SQLite's other files follow.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sqlite: opening %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("sqlite: opening %s: %w", path, err)
	}
	wdb, err := sql.Open("sqlite", dsn(path, "rwc"))
	if err != nil {
		return nil, fmt.Errorf("sqlite: opening %s: %w", path, err)
	}
	wdb.SetMaxOpenConns(1)
	if err := migrate(ctx, wdb); err != nil {
		wdb.Close()
		return nil, err
	}
	w, err := newWriter(ctx, wdb)
	if err != nil {
		wdb.Close()
		return nil, fmt.Errorf("sqlite: preparing writer: %w", err)
	}
	rdb, err := sql.Open("sqlite", dsn(path, "ro"))
	if err != nil {
		w.close()
		return nil, fmt.Errorf("sqlite: opening %s for reading: %w", path, err)
	}
	rdb.SetMaxOpenConns(8)
	rdb.SetMaxIdleConns(8)
	return &Store{read: rdb, readDB: rdb, write: w, lock: lock}, nil
}

// OpenReadOnly opens a data directory for reading while another process may hold it. It takes no lock and changes
// nothing, so a database that an older program wrote stays what it is and is read as this one would migrate it; a
// directory without a database is store.ErrNotFound.
func OpenReadOnly(ctx context.Context, dir string) (*Store, error) {
	path := filepath.Join(dir, File)
	if _, err := os.Stat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("sqlite: no data in %s: %w", dir, store.ErrNotFound)
		}
		return nil, fmt.Errorf("sqlite: opening %s: %w", path, err)
	}
	rdb, err := sql.Open("sqlite", dsn(path, "ro"))
	if err != nil {
		return nil, fmt.Errorf("sqlite: opening %s: %w", path, err)
	}
	have, err := refuseNewer(ctx, rdb)
	if err != nil {
		rdb.Close()
		return nil, err
	}
	if have == 1 {
		odb, err := openOlder(rdb, dsn(path, "ro"))
		rdb.Close()
		if err != nil {
			return nil, err
		}
		rdb = odb
	}
	return &Store{read: rdb, readDB: rdb}, nil
}

func dsn(path, mode string) string {
	q := url.Values{}
	q.Set("mode", mode)
	for _, p := range []string{"busy_timeout(5000)", "synchronous(FULL)", "foreign_keys(ON)", "temp_store(MEMORY)"} {
		q.Add("_pragma", p)
	}
	if mode != "ro" {
		q.Add("_pragma", "journal_mode(WAL)")
		q.Add("_pragma", "journal_size_limit(67108864)")
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// Held reports whether a process holds the data directory for writing.
func Held(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return false
	}
	defer f.Close() // gives the shared lock back
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// lockDir takes an exclusive lock that ends with the process, however it ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sqlite: opening lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(f.Name())
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("sqlite: locking %s: %w", dir, err)
		}
		return nil, fmt.Errorf("%w: %s by process %s", ErrInUse, dir, strings.TrimSpace(string(holder)))
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // for people only; the lock is the kernel's
	}
	return f, nil
}

func provider(db *sql.DB) (*goose.Provider, error) {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, sub)
}

// SchemaVersion is the number of the newest migration this program knows.
func SchemaVersion() int64 {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(names) == 0 {
		return 0
	}
	last := filepath.Base(names[len(names)-1])
	n, _ := strconv.ParseInt(strings.SplitN(last, "_", 2)[0], 10, 64) // names are ours; a test reads them
	return n
}

func migrate(ctx context.Context, db *sql.DB) error {
	have, err := refuseNewer(ctx, db)
	if err != nil {
		return err
	}
	if have == SchemaVersion() {
		return nil
	}
	p, err := provider(db)
	if err != nil {
		return fmt.Errorf("sqlite: reading migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("sqlite: migrating: %w", err)
	}
	return nil
}

// refuseNewer gives the schema version of a database this program can read; 0 is one that has none yet.
func refuseNewer(ctx context.Context, db *sql.DB) (int64, error) {
	var name string
	err := db.QueryRowContext(ctx, `SELECT name FROM sqlite_master WHERE name = 'goose_db_version'`).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("sqlite: reading the database: %w", err)
	}
	var have sql.NullInt64 // NULL: another process has made the table and not yet written into it
	if err := db.QueryRowContext(ctx, `SELECT max(version_id) FROM goose_db_version`).Scan(&have); err != nil {
		return 0, fmt.Errorf("sqlite: reading schema version: %w", err)
	}
	if have.Int64 > SchemaVersion() {
		return 0, fmt.Errorf("%w: schema %d, known up to %d (hint: use the newer program)", ErrNewer, have.Int64, SchemaVersion())
	}
	return have.Int64, nil
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, b *store.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := b.Validate(); err != nil {
		return err
	}
	if s.write == nil {
		return errors.New("sqlite: opened read-only")
	}
	return s.write.apply(ctx, b)
}

// Close implements store.Store: it waits for the writes under way and gives the directory back.
func (s *Store) Close() error {
	var err error
	if s.write != nil {
		err = s.write.close()
	}
	err = errors.Join(err, s.readDB.Close())
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}
