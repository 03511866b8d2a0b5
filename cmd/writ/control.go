package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	"writ/runtime"
	"writ/store"
	"writ/store/sqlite"
)

// One process holds a data directory. Commands that write while another one holds it hand their batch to the holder,
// through a socket that only the owner of the directory can open; what they read, they read themselves.

// controlSocket is the name of the socket in the data directory.
const controlSocket = "writ.sock"

const maxControlBatch = 16 << 20

// controlAnswer is what the holder says of a batch.
type controlAnswer struct {
	Conflict *store.Conflict `json:"conflict,omitempty"`
	Unknown  bool            `json:"unknown,omitempty"`
	Error    string          `json:"error,omitempty"`
}

// control serves the socket of a directory that this process holds; applied is told of every batch that was written.
func control(dir string, st store.Store, applied func(*store.Batch)) (stop func(), err error) {
	path := filepath.Join(dir, controlSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // an earlier holder's; the lock says it is gone
		return nil, fmt.Errorf("preparing %s: %w", path, err)
	}
	l, err := listenPrivate(path)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apply", func(w http.ResponseWriter, r *http.Request) {
		var b store.Batch
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlBatch)).Decode(&b); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var ans controlAnswer
		err := st.Apply(context.WithoutCancel(r.Context()), &b)
		switch conflict := (*store.Conflict)(nil); {
		case errors.As(err, &conflict):
			ans.Conflict = conflict
		case errors.Is(err, store.ErrUnknown):
			ans.Unknown = true
		case err != nil:
			ans.Error = err.Error()
		case applied != nil:
			applied(&b)
		}
		_ = json.NewEncoder(w).Encode(ans)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
		<-done
		_ = os.Remove(path)
	}, nil
}

// maxSocketPath is what the address of a socket may have everywhere.
const maxSocketPath = 100

// shortPath is another name of a path in dir that fits the address of a socket; done gives it back.
func shortPath(dir, name string) (path string, done func(), err error) {
	path = filepath.Join(dir, name)
	if len(path) <= maxSocketPath || goruntime.GOOS != "linux" {
		return path, func() {}, nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name), func() { d.Close() }, nil
}

// listenPrivate makes the socket in a directory of its own that nobody else can enter, and moves it to its place: at no
// time could another user connect.
func listenPrivate(path string) (net.Listener, error) {
	private, err := os.MkdirTemp(filepath.Dir(path), ".sock-") // 0700
	if err != nil {
		return nil, fmt.Errorf("making the control socket: %w", err)
	}
	defer os.RemoveAll(private)
	tmp, done, err := shortPath(private, "s")
	if err != nil {
		return nil, fmt.Errorf("making the control socket: %w", err)
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("making the control socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(tmp, 0o600), os.Rename(tmp, path)); err != nil {
		l.Close()
		return nil, fmt.Errorf("making the control socket: %w", err)
	}
	return l, nil
}

// heldStore reads the directory and writes through its holder.
type heldStore struct {
	*sqlite.Store
	client *http.Client
}

func dialHolder(ctx context.Context, dir string) (*heldStore, error) {
	path := filepath.Join(dir, controlSocket)
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	ro, err := sqlite.OpenReadOnly(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &heldStore{ro, &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			short, done, err := shortPath(dir, controlSocket)
			if err != nil {
				return nil, err
			}
			defer done()
			return (&net.Dialer{}).DialContext(ctx, "unix", short)
		}}}}, nil
}

// Apply implements store.Store. When the holder's answer is lost nobody knows, and store.Commit looks it up.
func (s *heldStore) Apply(ctx context.Context, b *store.Batch) error {
	body, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("writing through the holder: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://holder/apply", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("writing through the holder: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: the holder answered %s: %s", store.ErrUnknown, resp.Status, data)
	}
	var ans controlAnswer
	if err := json.Unmarshal(data, &ans); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	switch {
	case ans.Conflict != nil:
		return ans.Conflict
	case ans.Unknown:
		return store.ErrUnknown
	case ans.Error != "":
		return errors.New(ans.Error)
	}
	return nil
}

// Close implements store.Store.
func (s *heldStore) Close() error {
	s.client.CloseIdleConnections()
	return s.Store.Close()
}

// operate opens the data directory for a command that writes a little: itself, or through the process that holds it.
// held says which. A directory without data is an error: there is nothing to decide on.
func (a *app) operate(dir string) (e *engine, held bool, err error) {
	if _, err := os.Stat(filepath.Join(dir, sqlite.File)); err != nil {
		return nil, false, refused("--data names the data directory of the runs", fmt.Errorf("no data in %s", dir))
	}
	if !sqlite.Held(dir) {
		e, err = a.open(a.ctx, dir, logger(a.err, false))
		return e, false, err
	}
	st, err := dialHolder(a.ctx, dir)
	if err != nil {
		return nil, true, refused("wait until that process has ended", fmt.Errorf("another process holds %s and does not take commands: %w", dir, err))
	}
	key, err := tenantKey(dir)
	if err != nil {
		st.Close()
		return nil, true, refused("", err)
	}
	rt, err := runtime.New(runtime.Config{Store: st, Key: key, Dir: dir, Owner: localOwner()})
	if err != nil {
		st.Close()
		return nil, true, refused("", err)
	}
	return &engine{store: st, runtime: rt}, true, nil
}
