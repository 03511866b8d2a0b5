package mcpclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
)

// Bounds of a listing.
const (
	MaxTools       = 10_000
	MaxSchemaBytes = 4 << 20 // of all schemas together
	maxPages       = 1_000
	maxName        = 128 // characters; the limit of MCP 2025-11-25
	maxDescription = 64 << 10
	maxSchemaDepth = 64
)

// listing is what one session listed.
type listing struct {
	sess     *session
	changes  int64           // list_changed notifications before it was asked for
	names    map[string]bool // every name, quarantined ones too
	tools    []writ.ToolSpec
	problems []writ.Problem
}

// wireTool is one tool of tools/list. All raw, so that a field of the wrong type spoils its own tool only.
type wireTool struct {
	Name        json.RawMessage            `json:"name"`
	Description json.RawMessage            `json:"description"`
	InputSchema json.RawMessage            `json:"inputSchema"`
	Annotations json.RawMessage            `json:"annotations"`
	Meta        map[string]json.RawMessage `json:"_meta"`
}

// Tools implements [writ.Toolset]. The listing is kept until the server announces another one or its process is
// replaced. The returned slices are the caller's.
func (c *Client) Tools(ctx context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	if err := c.enter(); err != nil {
		return nil, nil, err
	}
	defer c.wg.Done()
	s, err := c.acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	l, err := c.list(ctx, s, true)
	if errors.Is(err, errExpired) {
		// A listing changes nothing, so it may be asked for again.
		if s, err = c.acquire(ctx); err != nil {
			return nil, nil, err
		}
		l, err = c.list(ctx, s, true)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: listing tools: %w", c.cfg.Label, err)
	}
	c.mu.Lock()
	c.handed = l.changes
	c.mu.Unlock()
	return slices.Clone(l.tools), slices.Clone(l.problems), nil
}

// vanished reports whether the tool is freshly known to be offered no more. What is not known is no reason to
// refuse: the server will say so itself.
func (c *Client) vanished(ctx context.Context, s *session, name string) bool {
	c.mu.Lock()
	known := c.listing
	c.mu.Unlock()
	if known == nil {
		return false
	}
	if !known.fresh(c, s) {
		var err error
		if known, err = c.list(ctx, s, false); err != nil {
			return false
		}
	}
	return !known.names[name]
}

func (l *listing) fresh(c *Client, s *session) bool {
	return l != nil && l.sess == s && l.changes == c.changes.Load()
}

// list returns a fresh listing, asking the server at most once however many ask at a time. With certain it asks too
// where a change would not have been heard of.
func (c *Client) list(ctx context.Context, s *session, certain bool) (*listing, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ConnectTimeout)
	defer cancel()
	select {
	case c.listMu <- struct{}{}:
		defer func() { <-c.listMu }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	known := c.listing
	c.mu.Unlock()
	if known.fresh(c, s) && !(certain && s.link.deaf()) {
		return known, nil
	}
	l := &listing{sess: s, changes: c.changes.Load(), names: map[string]bool{}}
	raw, err := c.pages(ctx, s, l)
	if err != nil {
		return nil, err
	}
	l.read(raw, c.cfg.TrustTraits)
	c.mu.Lock()
	c.listing = l
	c.mu.Unlock()
	return l, nil
}

// pages reads the raw tools of all pages, up to the bounds.
func (c *Client) pages(ctx context.Context, s *session, l *listing) ([]json.RawMessage, error) {
	var all []json.RawMessage
	cursor := ""
	for range maxPages {
		page, err := c.page(ctx, s, cursor)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Tools...)
		if c.cfg.TrustTraits {
			l.problems = append(l.problems, page.Meta.Problems...)
		}
		switch {
		case len(all) > MaxTools:
			l.problem("", fmt.Sprintf("the server lists more than %d tools; the rest is left out", MaxTools), "")
			return all[:MaxTools], nil
		case page.NextCursor == "":
			return all, nil
		case page.NextCursor == cursor:
			l.problem("", "the server's listing repeats a page; the rest is left out", "")
			return all, nil
		}
		cursor = page.NextCursor
	}
	l.problem("", fmt.Sprintf("the server lists more than %d pages; the rest is left out", maxPages), "")
	return all, nil
}

type wirePage struct {
	Tools      []json.RawMessage `json:"tools"`
	NextCursor string            `json:"nextCursor"`
	Meta       struct {
		Problems []writ.Problem `json:"writ/problems"`
	} `json:"_meta"`
}

func (c *Client) page(ctx context.Context, s *session, cursor string) (wirePage, error) {
	ctx, release := s.link.bind(ctx)
	defer release()
	ctx, x := withExchange(ctx)
	_, err := s.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
	s.link.forget(x)
	o := x.snapshot()
	var page wirePage
	switch {
	case o.expired:
		return page, errExpired
	case o.answered && o.unread != "":
		return page, errors.New(o.unread)
	case o.answered && o.refused != "":
		return page, errors.New(o.refused)
	case o.answered && o.rpcErr != nil:
		return page, errors.New(o.rpcErr.Message)
	case !o.answered && ctx.Err() != nil:
		return page, context.Cause(ctx)
	case !o.answered && o.lost != "":
		return page, errors.New(o.lost)
	case !o.answered && s.dead():
		return page, errors.New(s.link.state())
	case !o.answered:
		return page, err
	}
	if err := json.Unmarshal(o.result, &page); err != nil || page.Tools == nil {
		return page, fmt.Errorf("the answer is no list of tools: %.200q", o.result)
	}
	return page, nil
}

// ReadTools reads raw tool descriptions as a listing would, together with problems already known of them.
func ReadTools(raw []json.RawMessage, known []writ.Problem, trust bool) ([]writ.ToolSpec, []writ.Problem) {
	l := &listing{names: map[string]bool{}, problems: known}
	l.read(raw, trust)
	return l.tools, l.problems
}

func (l *listing) problem(tool, message, hint string) {
	l.problems = append(l.problems, writ.Problem{Tool: tool, Message: message, Hint: hint})
}

// read checks every tool by itself: a bad one is left out and named, the others stay.
func (l *listing) read(raw []json.RawMessage, trust bool) {
	count := map[string]int{}
	size := 0
	for i, r := range raw {
		var w wireTool
		if err := json.Unmarshal(r, &w); err != nil {
			l.problem("", fmt.Sprintf("tool %d of the listing is left out: it is no tool description", i+1), "")
			continue
		}
		var name string
		if json.Unmarshal(w.Name, &name) != nil {
			l.problem("", fmt.Sprintf("tool %d of the listing is left out: its name is no string", i+1), "")
			continue
		}
		l.names[name] = true
		if count[name]++; count[name] > 1 {
			continue
		}
		size += len(w.InputSchema)
		spec, err := readTool(name, &w)
		switch {
		case size > MaxSchemaBytes:
			l.problem(name, fmt.Sprintf("left out: the schemas of the server exceed %d bytes", MaxSchemaBytes), "")
			continue
		case err != nil:
			l.problem(printable(name), "left out: "+err.Error(), "")
			continue
		}
		l.traits(&spec, w.Meta, trust)
		l.tools = append(l.tools, spec)
	}
	l.tools = slices.DeleteFunc(l.tools, func(t writ.ToolSpec) bool {
		if count[t.Name] == 1 {
			return false
		}
		l.problem(t.Name, fmt.Sprintf("left out: the server lists this name %d times", count[t.Name]), "")
		return true
	})
	slices.SortFunc(l.tools, func(a, b writ.ToolSpec) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(l.problems, func(a, b writ.Problem) int { return strings.Compare(a.Tool, b.Tool) })
}

// traits reads what the tool says of itself in _meta, where that counts.
func (l *listing) traits(spec *writ.ToolSpec, meta map[string]json.RawMessage, trust bool) {
	raw, ok := meta["writ/tool_traits"]
	if !ok {
		raw, ok = meta["tool_traits"]
	}
	if !ok {
		return
	}
	if !trust {
		l.problem(spec.Name, "the traits in its _meta are ignored: the connection does not trust them",
			"set trust_traits: true on the connection, or write tool_traits")
		return
	}
	traits, ignored, err := ParseTraits(raw)
	if err != nil {
		l.problem(spec.Name, "its own traits are not used: "+err.Error(), "until it is mended the tool's strategy is unknown, so it runs alone")
		return
	}
	if len(ignored) > 0 {
		l.problem(spec.Name, "its own traits have keys that mean nothing here: "+strings.Join(ignored, ", "), "")
	}
	spec.Declared = traits
}

func readTool(name string, w *wireTool) (writ.ToolSpec, error) {
	spec := writ.ToolSpec{Name: name}
	if err := CheckName(name); err != nil {
		return spec, err
	}
	if present(w.Description) && json.Unmarshal(w.Description, &spec.Description) != nil {
		return spec, errors.New("its description is no string")
	}
	if len(spec.Description) > maxDescription {
		return spec, fmt.Errorf("its description is longer than %d bytes", maxDescription)
	}
	if err := CheckSchema(w.InputSchema); err != nil {
		return spec, err
	}
	spec.Schema = compact(w.InputSchema)
	if present(w.Annotations) {
		var a struct {
			ReadOnly bool `json:"readOnlyHint"`
		}
		if json.Unmarshal(w.Annotations, &a) == nil {
			spec.Hints = &writ.ToolHints{ReadOnly: a.ReadOnly}
		}
	}
	spec.Definition = definition(w)
	return spec, nil
}

// definition is the digest of what the server says that the tool is; the order of keys and white space do not matter.
func definition(w *wireTool) string {
	h := sha256.New()
	for _, raw := range []json.RawMessage{w.Name, w.Description, w.InputSchema, w.Annotations} {
		text := []byte("null")
		if v, err := decodeJSON(raw); err == nil {
			text, _ = json.Marshal(v) // it came from JSON
		}
		h.Write(text)
		h.Write([]byte{'\n'})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// CheckName reports why a tool cannot go by this name. Which names a provider takes is another matter.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("its name is empty")
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Errorf("its name is longer than %d characters", maxName)
	}
	for _, r := range name {
		if r == utf8.RuneError || !unicode.IsGraphic(r) || unicode.IsSpace(r) {
			return fmt.Errorf("its name %q has a character that does not print", name)
		}
	}
	return nil
}

// printable is a name fit for a message: the name itself when it is one.
func printable(name string) string {
	if CheckName(name) == nil {
		return name
	}
	if r := []rune(name); len(r) > 40 {
		name = string(r[:40]) + "…"
	}
	return fmt.Sprintf("%q", name)
}

// dialects are the values of $schema that the validator knows.
var dialects = []any{"", "https://json-schema.org/draft/2020-12/schema",
	"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft-07/schema#"}

// CheckSchema reports why arguments could not be validated against the schema: it is no object schema, nests too
// deeply, refers outside itself, or does not compile.
func CheckSchema(raw json.RawMessage) error {
	if !startsWith(raw, '{') {
		return errors.New("its input schema is no object")
	}
	var scan scanner
	scan.feed(raw)
	if scan.deepest > maxSchemaDepth {
		return fmt.Errorf("its input schema nests deeper than %d levels", maxSchemaDepth)
	}
	var head struct {
		Type   any `json:"type"`
		Schema any `json:"$schema"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("its input schema is no JSON: %w", err)
	}
	if head.Type != nil && head.Type != "object" {
		return fmt.Errorf("its input schema is for %v, not for an object", head.Type)
	}
	if head.Schema != nil && !slices.Contains(dialects, head.Schema) {
		return fmt.Errorf("its input schema is in a dialect that is not supported: %v", head.Schema)
	}
	if ref := remoteRef(raw); ref != "" {
		return fmt.Errorf("its input schema refers outside itself: $ref %.100q", ref)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(raw, &schema); err != nil {
		return fmt.Errorf("its input schema does not compile: %w", err)
	}
	if _, err := schema.Resolve(nil); err != nil {
		return fmt.Errorf("its input schema does not compile: %w", err)
	}
	return nil
}

// remoteRef finds a $ref with a scheme. A relative one is left to the compiler, which knows the schema's own ids.
func remoteRef(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	return findRef(v)
}

func findRef(v any) string {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range []string{"$ref", "$dynamicRef"} {
			if ref, ok := v[k].(string); ok && strings.Contains(ref, "://") {
				return ref
			}
		}
		for k, child := range v {
			if k == "default" || k == "const" || k == "enum" || k == "examples" {
				continue // data, not schema
			}
			if ref := findRef(child); ref != "" {
				return ref
			}
		}
	case []any:
		for _, child := range v {
			if ref := findRef(child); ref != "" {
				return ref
			}
		}
	}
	return ""
}
