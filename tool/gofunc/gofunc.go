// Package gofunc offers Go functions with typed parameters as a [writ.Toolset].
//
//	type Params struct {
//		City string `json:"city" jsonschema:"the city's name"`
//		Days int    `json:"days,omitempty" jsonschema:"how many days ahead"`
//	}
//
//	set, err := gofunc.Set(gofunc.Func("forecast", "The weather to come.",
//		func(ctx context.Context, call writ.Call, in Params) (writ.Result, error) { … },
//		gofunc.Options{Effect: writ.EffectNone}))
package gofunc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"writ"
)

// Options say what a function means. The zero value says nothing: strategy unknown, effect once.
type Options struct {
	Traits    *writ.DeclaredTraits // nil = nothing declared
	Paths     writ.ToolPaths       // the parameters that name what is read and written
	Effect    writ.Effect          // zero = once
	Local     bool                 // see [writ.ToolSpec]
	CodeParam string               // see [writ.ToolSpec]
}

// Function is one Go function as a tool. It is made by [Func].
type Function struct {
	spec   writ.ToolSpec
	effect writ.Effect
	run    func(ctx context.Context, call writ.Call) (writ.Result, error)
	err    error
}

var names = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)

// Func describes fn as a tool. The parameters' schema is inferred from In, a struct: the json tags name the
// properties, fields without omitempty are required, the jsonschema tags are the descriptions, and other properties
// are refused.
//
// fn returns what the tool answered; a failure that fn knows of is a Result with IsError. An error of fn means that
// nobody knows whether the effect happened, unless it wraps [writ.ErrNotStarted]. So does a panic. When ctx ends, the
// call ends with an unknown outcome; fn should return soon, because Close waits for it.
//
// A mistake in the description is reported by [Set].
func Func[In any](name, description string, fn func(ctx context.Context, call writ.Call, in In) (writ.Result, error), opts Options) Function {
	f := Function{effect: opts.Effect, spec: writ.ToolSpec{Name: name, Description: strings.TrimSpace(description),
		Declared: opts.Traits, Paths: opts.Paths, CodeParam: opts.CodeParam, Local: opts.Local}}
	switch {
	case !names.MatchString(name):
		f.err = fmt.Errorf("the name %q is none: a letter, then letters, digits, _, - and ., at most 128", name)
		return f
	case fn == nil:
		f.err = fmt.Errorf("%s: no function", name)
		return f
	}
	schema, err := jsonschema.For[In](nil)
	if err == nil && schema.Type != "object" {
		err = errors.New("the parameters must be a struct")
	}
	if err == nil {
		f.err = checkParams(name, schema, &opts)
		f.spec.Schema, err = json.Marshal(schema)
	}
	if err != nil {
		f.err = fmt.Errorf("%s: parameters: %w", name, err)
		return f
	}
	f.run = func(ctx context.Context, call writ.Call) (writ.Result, error) {
		var in In
		params := call.Params
		if len(bytes.TrimSpace(params)) == 0 {
			params = json.RawMessage("{}")
		}
		dec := json.NewDecoder(bytes.NewReader(params))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil {
			return writ.Result{}, fmt.Errorf("the arguments do not fit: %w: %w", err, writ.ErrNotStarted)
		}
		return fn(ctx, call, in)
	}
	return f
}

// checkParams finds options that name a parameter which does not exist: a target nobody would ever see.
func checkParams(name string, schema *jsonschema.Schema, opts *Options) error {
	named := slices.Concat(opts.Paths.Reads, opts.Paths.Writes)
	if opts.CodeParam != "" {
		named = append(named, opts.CodeParam)
	}
	for _, p := range named {
		if schema.Properties[p] == nil {
			return fmt.Errorf("%s: the options name a parameter %q that it does not have", name, p)
		}
	}
	return nil
}

// Funcs is a set of functions as one connection. It is safe for concurrent use.
type Funcs struct {
	tools   []writ.ToolSpec
	byName  map[string]Function
	life    context.Context
	endLife context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

var _ writ.Toolset = (*Funcs)(nil)

// Set checks the functions and returns them as one connection. It reports every mistake at once.
func Set(funcs ...Function) (*Funcs, error) {
	s := &Funcs{byName: map[string]Function{}}
	var errs []error
	for _, f := range funcs {
		if f.err != nil {
			errs = append(errs, f.err)
			continue
		}
		if f.run == nil {
			errs = append(errs, errors.New("a Function that was not made by Func"))
			continue
		}
		if _, ok := s.byName[f.spec.Name]; ok {
			errs = append(errs, fmt.Errorf("%s: registered twice", f.spec.Name))
			continue
		}
		s.byName[f.spec.Name] = f
		s.tools = append(s.tools, f.spec)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("gofunc: %w", err)
	}
	slices.SortFunc(s.tools, func(a, b writ.ToolSpec) int { return strings.Compare(a.Name, b.Name) })
	s.life, s.endLife = context.WithCancel(context.Background())
	return s, nil
}

// Tools implements [writ.Toolset].
func (s *Funcs) Tools(context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	return slices.Clone(s.tools), nil, nil
}

// Effects returns what the program says of every function: may a lost call be repeated. A registration in Go may say
// it, as the administrator's configuration may.
func (s *Funcs) Effects() map[string]writ.Effect {
	out := make(map[string]writ.Effect, len(s.byName))
	for name, f := range s.byName {
		out[name] = f.effect
	}
	return out
}

type outcome struct {
	res writ.Result
	err error
}

// Call implements [writ.Toolset].
func (s *Funcs) Call(ctx context.Context, call writ.Call) (writ.Result, error) {
	f, ok := s.byName[call.Tool]
	if !ok {
		return writ.Result{}, fmt.Errorf("gofunc: calling %s: %w", call.Tool, writ.ErrVanished)
	}
	if err := ctx.Err(); err != nil {
		return writ.Result{}, fmt.Errorf("gofunc: calling %s: %w: %w", call.Tool, err, writ.ErrNotStarted)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return writ.Result{}, fmt.Errorf("gofunc: calling %s: closed: %w", call.Tool, writ.ErrNotStarted)
	}
	done := make(chan outcome, 1)
	runCtx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(s.life, func() { cancel(errors.New("closed")) })
	s.wg.Go(func() {
		defer unlink()
		defer cancel(nil)
		done <- run(runCtx, f, call)
	})
	s.mu.Unlock()
	select {
	case o := <-done:
		return finish(call, o)
	case <-runCtx.Done():
		// The function's end cancels runCtx too; what it answered counts before the cancellation.
		select {
		case o := <-done:
			return finish(call, o)
		default:
		}
		return writ.Result{}, fmt.Errorf("gofunc: calling %s: the outcome is unknown: %w", call.Tool, context.Cause(runCtx))
	}
}

func finish(call writ.Call, o outcome) (writ.Result, error) {
	if o.err != nil {
		return writ.Result{}, fmt.Errorf("gofunc: calling %s: %w", call.Tool, o.err)
	}
	return o.res, nil
}

// run calls the function; a panic or a Goexit in it ends this call with an unknown outcome, not the program.
func run(ctx context.Context, f Function, call writ.Call) (o outcome) {
	ended := false
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		defer func() {
			if ended {
				return
			}
			if v := recover(); v != nil {
				o = outcome{err: fmt.Errorf("panic: %v (%s)", v, panicSite())}
			} else {
				o = outcome{err: errors.New("the function ended its goroutine")}
			}
		}()
		res, err := f.run(ctx, call)
		ended = true
		o = outcome{res, err}
	}()
	<-finished
	return o
}

// panicSite is file:line of the frame that panicked.
func panicSite() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		fr, more := frames.Next()
		if !strings.HasPrefix(fr.Function, "runtime.") {
			return fmt.Sprintf("%s:%d", fr.File, fr.Line)
		}
		if !more {
			return "unknown place"
		}
	}
}

// Close implements [writ.Toolset]: it cancels the running functions and waits for them.
func (s *Funcs) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.endLife()
	s.wg.Wait()
	return nil
}
