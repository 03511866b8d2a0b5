package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"writ"
	"writ/config"
	"writ/model/anthropic"
	"writ/model/openai"
	"writ/model/recorded"
	"writ/runtime"
)

// liveModels are what --live looks for, in this order: the variable that holds a key, and the model it is good for.
var liveModels = []struct{ env, ref string }{
	{"ANTHROPIC_API_KEY", "anthropic/claude-sonnet-4-6"},
	{"OPENAI_API_KEY", "openai/gpt-5"},
}

// models makes each provider's model once and keeps it for the life of the process: it learns what its server takes.
type models struct {
	cfg    *config.Config
	made   map[string]writ.Model
	record *recorded.Recorder
	keys   []string // values that must not stand in a recording
	toolID func(string) string
	listed atomic.Bool // a price came from the list below
}

func (m *models) close(log *slog.Logger) {
	for name, made := range m.made {
		if k, ok := made.(keyed); ok {
			if mended, ok := k.Model.(interface{ Mended() []string }); ok {
				for _, what := range mended.Mended() {
					log.Info("a tool's schema was mended for the provider", "model", name, "what", what)
				}
			}
		}
		if c, ok := made.(io.Closer); ok {
			_ = c.Close() // idle connections
		}
	}
}

// choose resolves who answers: --model, else --live, else the agent's configuration, with its fallbacks.
func (a *app) choose(m *models, agent *config.Agent, flag string, live bool) (first runtime.Choice, fallback []runtime.Choice, err error) {
	ref := agent.ModelFor(config.StrongRole)
	switch {
	case flag != "" && live:
		return first, nil, usage("--model and --live exclude each other")
	case flag != "":
		if ref, err = parseModel(flag); err != nil {
			return first, nil, err
		}
	case live:
		if ref, err = a.liveModel(); err != nil {
			return first, nil, err
		}
	case ref.IsZero():
		return first, nil, usage("no model: give --model recorded:FILE or PROVIDER/MODEL, or --live, or set model in the configuration of agent %s", agent.ID)
	}
	if first, err = m.choice(ref, agent); err != nil {
		return first, nil, err
	}
	for _, ref := range agent.FallbackModels {
		c, err := m.choice(ref, agent)
		if err != nil {
			return first, nil, err
		}
		fallback = append(fallback, c)
	}
	return first, fallback, nil
}

func parseModel(flag string) (config.ModelRef, error) {
	if file, ok := strings.CutPrefix(flag, "recorded:"); ok {
		if file == "" {
			return config.ModelRef{}, usage("--model recorded: names no file")
		}
		return config.ModelRef{Recording: file}, nil
	}
	provider, model, ok := strings.Cut(flag, "/")
	if !ok || provider == "" || model == "" {
		return config.ModelRef{}, usage("--model %s: write recorded:FILE or PROVIDER/MODEL", flag)
	}
	return config.ModelRef{Provider: provider, Model: model}, nil
}

// liveModel picks a provider by the keys that are present, and says which.
func (a *app) liveModel() (config.ModelRef, error) {
	var names []string
	for _, l := range liveModels {
		names = append(names, l.env)
		if os.Getenv(l.env) == "" {
			continue
		}
		ref, err := parseModel(l.ref)
		if err == nil {
			fmt.Fprintf(a.err, "writ: %s answers (a key is in %s)\n", l.ref, l.env)
		}
		return ref, err
	}
	return config.ModelRef{}, refused("set one of them, or name a configured provider with --model PROVIDER/MODEL",
		fmt.Errorf("--live found no key: none of %s is set", strings.Join(names, ", ")))
}

func (m *models) choice(ref config.ModelRef, agent *config.Agent) (runtime.Choice, error) {
	name := ref.String()
	if ref.Recording != "" {
		name = "recorded:" + filepath.Base(ref.Recording)
	}
	key := name
	if ref.Recording != "" {
		key = "recorded:" + ref.Recording // two files may have the same base name
	}
	made := m.made[key]
	if made == nil {
		var err error
		if ref.Recording != "" {
			made, err = recordedModel(ref.Recording, agent)
		} else {
			made, err = m.provider(ref)
		}
		if err != nil {
			return runtime.Choice{}, err
		}
		m.made[key] = made
	}
	if m.record != nil {
		made = m.record.Wrap(made, m.toolID)
	}
	return runtime.Choice{Name: name, Model: made}, nil
}

func recordedModel(file string, agent *config.Agent) (writ.Model, error) {
	rec, err := recorded.Load(file)
	if err != nil {
		return nil, refused("docs/cli.md describes recordings", err)
	}
	if rec.Dialect() != agent.Dialect {
		return nil, refused("set dialect: "+string(rec.Dialect())+" on the agent, or use another recording",
			fmt.Errorf("recording %s speaks the %s dialect, agent %s the %s one", file, rec.Dialect(), agent.ID, agent.Dialect))
	}
	return rec.Model(), nil
}

// provider makes the model of a configured or implied provider.
func (m *models) provider(ref config.ModelRef) (writ.Model, error) {
	p, ok := m.cfg.Models.Provider(ref.Provider)
	if !ok {
		return nil, usage("model %s: there is no provider %s; there are %s", ref, ref.Provider, strings.Join(m.cfg.Models.Providers(), ", "))
	}
	key, err := p.APIKey.Resolve(os.LookupEnv)
	var missing *config.MissingError
	if errors.As(err, &missing) && p.BaseURL != "" && p.Pos.IsZero() {
		err = nil // a local server needs none
	}
	if err == nil && key == "" && p.BaseURL == "" {
		err = fmt.Errorf("no key is configured (hint: set %s)", p.APIKey)
	}
	if err != nil {
		return nil, refused("export it, or set models.providers."+ref.Provider+".api_key", fmt.Errorf("model %s: %w", ref, err))
	}
	if key != "" {
		m.keys = append(m.keys, key)
	}
	made, err := newModel(p, ref.Model, key)
	if err != nil {
		return nil, refused("", fmt.Errorf("model %s: %w", ref, err))
	}
	return keyed{made, ref.Model, p.APIKey.String()}, nil
}

func newModel(p config.Provider, model, key string) (writ.Model, error) {
	switch p.Kind {
	case "anthropic":
		return anthropic.New(anthropic.Config{APIKey: key, BaseURL: p.BaseURL, Model: model, Timeouts: anthropic.Timeouts{FirstByte: p.Timeout, Idle: p.Timeout}})
	case "openai":
		return openai.New(openai.Config{APIKey: key, BaseURL: p.BaseURL, Model: model, API: openai.Responses, Timeouts: openai.Timeouts{FirstByte: p.Timeout, Idle: p.Timeout}})
	case "openai_chat":
		return openai.New(openai.Config{APIKey: key, BaseURL: p.BaseURL, Model: model, API: openai.Chat, Timeouts: openai.Timeouts{FirstByte: p.Timeout, Idle: p.Timeout}})
	}
	return nil, fmt.Errorf("kind %s is not known", p.Kind)
}

// keyed sends the provider's own name of the model, and says where a refused key came from.
type keyed struct {
	writ.Model
	name, from string
}

// Stream implements writ.Model.
func (k keyed) Stream(ctx context.Context, req *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	own := *req
	own.Model = k.name
	return func(yield func(writ.ModelEvent, error) bool) {
		for ev, err := range k.Model.Stream(ctx, &own) {
			var me *writ.ModelError
			if errors.As(err, &me) && me.Class == writ.ErrorAuth {
				told := *me
				if k.from == "" {
					told.Message += " (no key was sent: a provider with a base_url gets only the api_key of its entry)"
				} else {
					told.Message += fmt.Sprintf(" (the key comes from %s)", k.from)
				}
				err = &told
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// Close implements io.Closer.
func (k keyed) Close() error {
	if c, ok := k.Model.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// pricesAsOf dates the table of list prices below, in US dollars per million tokens. models.prices overrides it.
const pricesAsOf = "2025-12"

var listPrices = map[string]config.Price{
	"anthropic/claude-opus-4-5":           {Input: 5, Output: 25, CacheRead: 0.50, CacheWrite: 6.25},
	"anthropic/claude-sonnet-4-6":         {Input: 3, Output: 15, CacheRead: 0.30, CacheWrite: 3.75},
	"anthropic/claude-sonnet-4-5":         {Input: 3, Output: 15, CacheRead: 0.30, CacheWrite: 3.75},
	"anthropic/claude-haiku-4-5":          {Input: 1, Output: 5, CacheRead: 0.10, CacheWrite: 1.25},
	"anthropic/claude-haiku-4-5-20251001": {Input: 1, Output: 5, CacheRead: 0.10, CacheWrite: 1.25},
	"openai/gpt-5":                        {Input: 1.25, Output: 10, CacheRead: 0.125, CacheWrite: 1.25},
	"openai/gpt-5-mini":                   {Input: 0.25, Output: 2, CacheRead: 0.025, CacheWrite: 0.25},
	"openai/gpt-4.1":                      {Input: 2, Output: 8, CacheRead: 0.50, CacheWrite: 2},
	"openai/gpt-4.1-mini":                 {Input: 0.40, Output: 1.60, CacheRead: 0.10, CacheWrite: 0.40},
}

// price looks a model up: the configuration's own prices first, then the list.
func (m *models) price(name string) (config.Price, bool) {
	if p, ok := m.cfg.Models.Prices[name]; ok {
		return p, true
	}
	provider, model, _ := strings.Cut(name, "/")
	p, ok := m.cfg.Models.Provider(provider)
	if !ok || p.BaseURL != "" {
		return config.Price{}, false // another server has prices of its own
	}
	kind := strings.TrimSuffix(p.Kind, "_chat")
	price, ok := listPrices[kind+"/"+model]
	if ok {
		m.listed.Store(true)
	}
	return price, ok
}
