// Package python offers the functions of an unmodified Python file as a [writ.Toolset].
//
// The functions are those that carry Semantic Kernel's @kernel_function; KDCube's @tool_trait says what they mean.
// Where those two packages are not installed, small stand-ins take the place of exactly their import paths. A worker
// process of the user's own interpreter (3.9 or newer) imports the file and speaks MCP over stdio; [Parse] lists the
// same tools without running a line of the file.
//
// A tool reaches the call's idempotency key through the module writ_tool, which exists only inside the worker:
//
//	import writ_tool
//	key = writ_tool.idempotency_key()
package python

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"writ"
	"writ/internal/mcpclient"
)

// Defaults of [Config].
const (
	DefaultInterpreter = "python3"
	DefaultMemoryLimit = 2 << 30
	parseTimeout       = 30 * time.Second
)

//go:embed common.py
var commonPy string

//go:embed hints.py
var hintsPy string

//go:embed results.py
var resultsPy string

//go:embed worker.py
var workerPy string

//go:embed parse.py
var parsePy string

// Config names a Python file and how to run it. Zero values are the documented defaults.
type Config struct {
	Alias          string            // the connection's name, for messages and logs; empty = the file's name
	File           string            // the Python file
	Interpreter    string            // empty = python3
	Env            map[string]string // added to PATH, HOME and LANG, which is all that the worker gets
	Dir            string            // working directory; empty = the file's folder
	ConnectTimeout time.Duration     // start, and import with listing; 0 = 30 s each
	CallTimeout    time.Duration     // of one call; 0 = the caller's context alone
	MemoryLimit    int64             // bytes of the worker's address space; 0 = 2 GiB; negative = none
	MaxResult      int               // bytes of one answer; 0 = 32 MiB
	Log            *slog.Logger      // gets what the tools print; nil = discarded
}

// Tools is the set of a file's functions. It is safe for concurrent use.
//
// Calls run in parallel: async functions on one event loop, sync ones each in a thread. A cancelled async call is
// cancelled; a sync one runs on and its result is discarded, because Python cannot end a thread. An exception is a
// result with IsError: its type, its message and the line in the file. When the worker dies, calls in flight are
// unknown and the next call gets a fresh one.
type Tools struct{ *mcpclient.Client }

var _ writ.Toolset = (*Tools)(nil)

// Open prepares a worker. The process starts, and the file is imported, with the first Tools or Call.
func Open(cfg Config) (*Tools, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	env := maps.Clone(cfg.Env)
	if env == nil {
		env = map[string]string{}
	}
	env["PYTHONDONTWRITEBYTECODE"], env["PYTHONUNBUFFERED"] = "1", "1"
	memory := cfg.MemoryLimit
	switch {
	case memory == 0:
		memory = DefaultMemoryLimit
	case memory < 0:
		memory = 0
	}
	script := strings.Join([]string{commonPy, hintsPy, resultsPy, workerPy}, "\n")
	c, err := mcpclient.New(mcpclient.Config{
		Label:   fmt.Sprintf("python: %q", cfg.Alias),
		Command: cfg.Interpreter, Args: []string{"-c", script, cfg.File, strconv.FormatInt(memory, 10)},
		Env: env, Dir: cfg.Dir,
		// The worker only passes on what the file's decorators say; who wrote the file wrote the configuration's ref.
		TrustTraits:    true,
		ConnectTimeout: cfg.ConnectTimeout, CallTimeout: cfg.CallTimeout, MaxResult: cfg.MaxResult, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return &Tools{c}, nil
}

// complete checks the configuration and fills the defaults in.
func (cfg *Config) complete() error {
	if cfg.File == "" {
		return errors.New("python: opening: no file")
	}
	file, err := filepath.Abs(cfg.File)
	if err != nil {
		return fmt.Errorf("python: opening: %w", err)
	}
	if info, err := os.Stat(file); err != nil {
		return fmt.Errorf("python: opening: %w", err)
	} else if info.IsDir() {
		return fmt.Errorf("python: opening: %s is a folder", file)
	}
	cfg.File = file
	if cfg.Alias == "" {
		cfg.Alias = filepath.Base(file)
	}
	if cfg.Interpreter == "" {
		cfg.Interpreter = DefaultInterpreter
	}
	if cfg.Dir == "" {
		cfg.Dir = filepath.Dir(file)
	}
	return nil
}

// Parse lists the tools that [Tools.Tools] would, by parsing the file and executing none of it: names,
// descriptions, parameters and traits as far as they are written literally. What is not is named in the problems.
func Parse(ctx context.Context, cfg Config) ([]writ.ToolSpec, []writ.Problem, error) {
	if err := cfg.complete(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, parseTimeout)
	defer cancel()
	// -I and -S: no site-packages, no sitecustomize, no PYTHON* variables; nothing of the user's runs.
	cmd := exec.CommandContext(ctx, cfg.Interpreter, "-I", "-S", "-c", commonPy+"\n"+parsePy, cfg.File)
	cmd.Env = mcpclient.Environment(nil)
	cmd.WaitDelay = time.Second
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
			err = fmt.Errorf("interpreter %q not found", cfg.Interpreter)
		default:
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
		}
		return nil, nil, fmt.Errorf("python: %q: parsing: %w", cfg.Alias, err)
	}
	var answer struct {
		Error    string            `json:"error"`
		Tools    []json.RawMessage `json:"tools"`
		Problems []writ.Problem    `json:"problems"`
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return nil, nil, fmt.Errorf("python: %q: parsing: %w", cfg.Alias, err)
	}
	if answer.Error != "" {
		return nil, nil, fmt.Errorf("python: %q: parsing: %s", cfg.Alias, answer.Error)
	}
	tools, problems := mcpclient.ReadTools(answer.Tools, answer.Problems, true)
	return tools, problems, nil
}
