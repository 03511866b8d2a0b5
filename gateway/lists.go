package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
)

func (s *session) listTools(ctx context.Context, p *mcp.ListToolsParams) (mcp.Result, error) {
	c, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	return s.page(tools, c.items, cursorOf(p == nil, func() string { return p.Cursor }))
}

// listItems merges a kind of listing of all upstreams. Each item stays as its server wrote it, but for the names of
// prompts where there are several servers; of a resource that two of them have the first one's stands.
func (s *session) listItems(ctx context.Context, k kind, cursor string) (mcp.Result, error) {
	any := false
	for _, up := range s.ups {
		has, _ := up.offers(k)
		any = any || has
	}
	if !any {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no upstream has " + listings[k].field}
	}
	return s.page(k, s.merged(ctx, k), cursor)
}

func (s *session) merged(ctx context.Context, k kind) []json.RawMessage {
	var all []json.RawMessage
	seen := map[string]*upstream{}
	for _, up := range s.ups {
		for _, raw := range up.list(ctx, k) {
			if len(s.ups) == 1 && !s.g.cfg.Prefix {
				all = append(all, raw)
				continue
			}
			var item struct{ Name, URI, URITemplate string }
			if json.Unmarshal(raw, &item) != nil {
				continue
			}
			id := item.URI + item.URITemplate
			if k == prompts {
				id = outer(up.alias, item.Name, s.g.cfg.Prefix)
				raw = renamed(raw, item.Name, id)
			}
			if first := seen[id]; first != nil {
				s.g.problem(writ.Problem{Tool: up.alias, Message: fmt.Sprintf("its %s %q is that of %s already", strings.TrimSuffix(listings[k].field, "s"), id, first.alias)})
				continue
			}
			seen[id] = up
			if k == resources {
				s.own(item.URI, up)
			}
			all = append(all, raw)
		}
	}
	return all
}

// page cuts a listing. A cursor is good for the listing it came from; after a change the client begins anew.
func (s *session) page(k kind, items []json.RawMessage, cursor string) (mcp.Result, error) {
	start := 0
	size := s.g.cfg.PageSize
	version := ""
	if len(items) > size || cursor != "" {
		h := fnv.New64a()
		for _, it := range items {
			h.Write(it)
		}
		version = fmt.Sprintf("%x", h.Sum64())
	}
	if cursor != "" {
		text, err := base64.RawURLEncoding.DecodeString(cursor)
		v, n, ok := strings.Cut(string(text), ":")
		if _, serr := fmt.Sscanf(n, "%d", &start); err != nil || !ok || serr != nil || v != version || start < 0 || start > len(items) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is not of this listing, which may have changed: begin anew"}
		}
	}
	end := min(start+size, len(items))
	slice := items[start:end]
	if slice == nil {
		slice = []json.RawMessage{}
	}
	out := map[string]any{listings[k].field: slice}
	if end < len(items) {
		out["nextCursor"] = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s:%d", version, end))
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return &rawResult{raw: raw}, nil
}

// promptOwner finds the upstream of a prompt, and the prompt's own name.
func (s *session) promptOwner(name string) (*upstream, string, error) {
	for _, up := range s.ups {
		own, ok := name, !s.g.cfg.Prefix
		if !ok {
			own, ok = strings.CutPrefix(name, up.alias+"__")
		}
		if ok && up.caps().Prompts != nil {
			return up, own, nil
		}
	}
	return nil, "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown prompt %q", name)}
}

// own remembers whose a resource is.
func (s *session) own(uri string, up *upstream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners == nil {
		s.owners = map[string]*upstream{}
	}
	if s.owners[uri] == nil && len(s.owners) < maxOwners {
		s.owners[uri] = up
	}
}

// maxOwners bounds what a session remembers of resources.
const maxOwners = 100_000

// resourceOwner finds the upstream of a resource: the only one that has any, the one that lists it or named it in a
// result, or the one with a template for it.
func (s *session) resourceOwner(ctx context.Context, uri string) (*upstream, error) {
	var with []*upstream
	for _, up := range s.ups {
		if up.caps().Resources != nil {
			with = append(with, up)
		}
	}
	if len(with) == 1 {
		return with[0], nil
	}
	s.mu.Lock()
	up := s.owners[uri]
	s.mu.Unlock()
	if up != nil {
		return up, nil
	}
	s.merged(ctx, resources)
	s.mu.Lock()
	up = s.owners[uri]
	s.mu.Unlock()
	if up != nil {
		return up, nil
	}
	for _, up := range with {
		for _, raw := range up.list(ctx, templates) {
			var t struct{ URITemplate string }
			if json.Unmarshal(raw, &t) != nil {
				continue
			}
			if t.URITemplate == uri { // a completion names the template itself
				return up, nil
			}
			if matchesTemplate(t.URITemplate, uri) {
				return up, nil
			}
		}
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("no upstream has the resource %.500q", uri)}
}

// expression is a place in a URI template (RFC 6570).
var expression = regexp.MustCompile(`\{[^{}]*\}`)

// matchesTemplate reports whether the URI may come of the template: its literal parts are there, in order.
func matchesTemplate(template, uri string) bool {
	parts := expression.Split(template, -1)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	re, err := regexp.Compile("^(?s:" + strings.Join(parts, ".*") + ")$")
	return err == nil && re.MatchString(uri)
}

// learn remembers whose the resources are that a tool's result links to.
func (s *session) learn(up *upstream, res mcp.Result) {
	raw, ok := res.(*rawResult)
	if !ok || len(s.ups) < 2 {
		return
	}
	var w struct {
		Content []struct {
			Type, URI string
			Resource  struct{ URI string }
		}
	}
	if json.Unmarshal(raw.raw, &w) != nil {
		return
	}
	for _, c := range w.Content {
		switch c.Type {
		case "resource_link":
			s.own(c.URI, up)
		case "resource":
			s.own(c.Resource.URI, up)
		}
	}
}
