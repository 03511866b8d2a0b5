// Package workspace keeps the files of one conversation and offers the built-in file tools react.read, react.write,
// react.patch and react.rg.
//
// The directory holds files/ (what the agent and its tools write) and results/ (large results, written by the
// runtime only). A plain path means files/; "conv:fi:files/notes.md" is its ref, accepted wherever a path is. Every
// access goes through an [os.Root], so that no path leaves the directory, symbolic links included.
package workspace

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unicode"
	"unicode/utf8"

	"writ"
)

const (
	// Alias is the connection's alias: the tools are react.read, react.write, react.patch and react.rg.
	Alias = "react"
	// RefPrefix begins the ref of a file; the canonical path follows.
	RefPrefix = "conv:fi:"

	filesDir   = "files"
	resultsDir = "results"
	tempPrefix = ".writ-"
)

// Limits of a workspace.
const (
	MaxFile   = 10 << 20 // bytes of one written file
	MaxResult = 64 << 20 // bytes of one offloaded result
	MaxFiles  = 10_000
	MaxPath   = 512 // bytes
	MaxDepth  = 32  // components
)

// Workspace is the directory of one conversation. It is safe for concurrent use. Two of them on one directory do
// not see each other's patches coming: the conversation's lease must keep them apart.
type Workspace struct {
	root *os.Root
	mu   sync.RWMutex // held for writing by write and patch, which read before they write
}

var _ writ.Toolset = (*Workspace)(nil)

// Open opens the workspace in dir, creating what is missing.
func Open(dir string) (*Workspace, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("workspace: opening: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("workspace: opening: %w", err)
	}
	for _, d := range []string{filesDir, resultsDir} {
		if err := root.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			root.Close()
			return nil, fmt.Errorf("workspace: opening: %w", err)
		}
	}
	return &Workspace{root: root}, nil
}

// Close implements [writ.Toolset]. The files stay.
func (w *Workspace) Close() error { return w.root.Close() }

// Tools implements [writ.Toolset]: the static table of [Specs].
func (w *Workspace) Tools(context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	var out []writ.ToolSpec
	for _, s := range Specs() {
		out = append(out, s.tool())
	}
	slices.SortFunc(out, func(a, b writ.ToolSpec) int { return strings.Compare(a.Name, b.Name) })
	return out, nil, nil
}

// Call implements [writ.Toolset].
func (w *Workspace) Call(ctx context.Context, call writ.Call) (writ.Result, error) {
	if err := ctx.Err(); err != nil {
		return writ.Result{}, fmt.Errorf("workspace: %s: %w: %w", call.Tool, err, writ.ErrNotStarted)
	}
	switch call.Tool {
	case "read":
		return w.read(ctx, call.Params)
	case "write":
		return w.write(call.Params)
	case "patch":
		return w.patch(call.Params)
	case "rg":
		return w.search(ctx, call.Params)
	}
	return writ.Result{}, fmt.Errorf("workspace: %s: %w", call.Tool, writ.ErrVanished)
}

// Ref is the ref of a canonical path.
func Ref(canonical string) string { return RefPrefix + canonical }

// Canon returns the one spelling of a path or ref, relative to the workspace: "files/notes.md". It is an error for a
// path that leaves the workspace or that some file system would read differently. It does not look at the disk.
func (w *Workspace) Canon(p string) (string, error) { return Canon(p) }

// Canon is [Workspace.Canon]; it needs no workspace.
func Canon(p string) (string, error) {
	bad := func(why string) (string, error) { return "", fmt.Errorf("path %.100q: %s", p, why) }
	s := strings.TrimPrefix(p, RefPrefix)
	switch {
	case s == "":
		return bad("empty")
	case len(s) > MaxPath:
		return bad(fmt.Sprintf("longer than %d bytes", MaxPath))
	case !utf8.ValidString(s):
		return bad("not UTF-8")
	case s[0] == '/':
		return bad("absolute; paths are relative to the workspace")
	}
	for _, r := range s {
		if unicode.IsControl(r) || strings.ContainsRune(`\:*?"<>|`, r) {
			return bad(fmt.Sprintf("the character %q is not allowed", r))
		}
	}
	var parts []string
	for part := range strings.SplitSeq(s, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return bad("must not contain ..")
		case strings.HasSuffix(part, ".") || strings.HasSuffix(part, " ") || part[0] == ' ':
			return bad("no part may begin with a space or end with a space or a dot")
		case strings.HasPrefix(part, tempPrefix):
			return bad("names that begin with " + tempPrefix + " are the runtime's")
		case reserved.MatchString(part):
			return bad("the name of a Windows device")
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return bad("names no file")
	}
	if parts[0] != filesDir && parts[0] != resultsDir {
		parts = append([]string{filesDir}, parts...)
	}
	out := strings.Join(parts, "/")
	switch {
	case len(parts) > MaxDepth:
		return bad(fmt.Sprintf("more than %d folders deep", MaxDepth))
	case len(out) > MaxPath:
		return bad(fmt.Sprintf("longer than %d bytes", MaxPath))
	}
	return out, nil
}

var reserved = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?$`)

// writable is Canon for write and patch, which may not touch results/ nor a folder's own name.
func writable(p string) (string, error) {
	c, err := Canon(p)
	switch {
	case err != nil:
		return "", err
	case c == filesDir:
		return "", fmt.Errorf("path %q: names a folder", p)
	case c == resultsDir || strings.HasPrefix(c, resultsDir+"/"):
		return "", fmt.Errorf("path %q: results/ is written by the runtime only; write under files/", p)
	}
	return c, nil
}

// Errors of load and store that callers tell apart.
var (
	errTooLarge   = errors.New("too large")
	errNotRegular = errors.New("not a regular file")
	errNotDurable = errors.New("written, but it is not known whether it survives a crash")
)

// load reads a whole regular file of at most limit bytes.
func (w *Workspace) load(canonical string, limit int64) ([]byte, fs.FileInfo, error) {
	// Without O_NONBLOCK a FIFO that somebody put there would hold us for ever.
	f, err := w.root.OpenFile(canonical, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, info, errNotRegular
	case info.Size() > limit:
		return nil, info, errTooLarge
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errTooLarge
	}
	return data, info, err
}

// store writes a file whole or not at all: a temporary file beside it, synced, then renamed over it. Parents are
// created. When it returns nil the file is durable. mu must be held.
func (w *Workspace) store(canonical string, data []byte) (created bool, err error) {
	info, err := w.root.Lstat(canonical)
	switch {
	case err == nil && info.IsDir():
		return false, errors.New("is a folder")
	case err == nil && !info.Mode().IsRegular():
		return false, errNotRegular
	case errors.Is(err, fs.ErrNotExist):
		created = true
		if n := len(w.Map(0)); n >= MaxFiles {
			return false, fmt.Errorf("the workspace has its %d files; none can be added", MaxFiles)
		}
	case err != nil && !errors.Is(err, syscall.ENOTDIR):
		return false, err
	}
	dir := path.Dir(canonical)
	if err := w.root.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	var salt [8]byte
	_, _ = rand.Read(salt[:])
	temp := dir + "/" + tempPrefix + hex.EncodeToString(salt[:])
	f, err := w.root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = w.root.Rename(temp, canonical)
	}
	if err != nil {
		_ = w.root.Remove(temp)
		return false, err
	}
	for d := dir; ; d = path.Dir(d) {
		if err := w.syncDir(d); err != nil {
			return created, fmt.Errorf("%w: %w", errNotDurable, err)
		}
		if d == "." || !created {
			return created, nil
		}
	}
}

func (w *Workspace) syncDir(dir string) error {
	d, err := w.root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Offload stores a large result under results/ and returns its ref. The name is made of the data's digest, so the
// same data has the same ref and is stored once; name says what it is ("search.json") and keeps its extension.
func (w *Workspace) Offload(name string, data []byte) (ref string, err error) {
	if len(data) > MaxResult {
		return "", fmt.Errorf("workspace: offloading %s: larger than %d bytes", name, MaxResult)
	}
	canonical := resultsDir + "/" + digest(data)
	if name = tidy(name); name != "" {
		canonical += "-" + name
	}
	if canonical, err = Canon(canonical); err != nil {
		return "", fmt.Errorf("workspace: offloading: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if info, err := w.root.Lstat(canonical); err == nil && info.Mode().IsRegular() && info.Size() == int64(len(data)) {
		return Ref(canonical), nil
	}
	if _, err := w.store(canonical, data); err != nil {
		return "", fmt.Errorf("workspace: offloading %s: %w", name, err)
	}
	return Ref(canonical), nil
}

// digest is the first 16 hexadecimal digits of the SHA-256.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:16]
}

// tidy makes a file name of any text.
func tidy(name string) string {
	var b strings.Builder
	for _, r := range name {
		switch {
		case b.Len() >= 64:
		case r < 128 && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' || r == '-' || r == '_'):
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	return strings.Trim(b.String(), "._-")
}

// Entry is one file of the map.
type Entry struct {
	Ref  string `json:"ref"`
	Path string `json:"path"` // canonical
	Size int64  `json:"size"`
}

// Map lists the regular files in the order of their paths, at most max of them; 0 = all.
func (w *Workspace) Map(max int) []Entry {
	var out []Entry
	_ = fs.WalkDir(w.root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // what cannot be read is not listed
		}
		if !d.Type().IsRegular() || strings.HasPrefix(d.Name(), tempPrefix) {
			return nil
		}
		if c, err := Canon(p); err != nil || c != p {
			return nil // no tool could name it
		}
		if info, err := d.Info(); err == nil {
			out = append(out, Entry{Ref: Ref(p), Path: p, Size: info.Size()})
		}
		return nil
	})
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	if max > 0 && len(out) > max {
		out = out[:max]
	}
	return out
}
