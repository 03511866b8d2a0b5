package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"writ"
	"writ/trait"
)

// builtConn is a connection with what only the checks need.
type builtConn struct {
	Connection
	aliasPos Pos
	path     string          // what messages call it
	strict   bool            // the ceiling is known, so names can be held against it
	callable map[string]bool // named_service: the callables of all allowed operations
}

// kinds of connection and the keys that only they have.
var kindKeys = map[Kind][]string{
	KindPython:       {"ref", "module", "env", "interpreter", "allowed"},
	KindMCP:          {"server_id", "trust_traits", "trust_annotations", "allowed"},
	KindHTTP:         {"url", "spec", "headers", "allow_private", "allowed"},
	KindNamedService: {"namespaces"},
	KindGo:           {"allowed"},
}

var validAlias = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// reservedAlias is the alias of the built-in tools.
const reservedAlias = "react"

// connection checks and resolves one tool connection.
func (c *checker) connection(a *Agent, s *connShape) *builtConn {
	conn := &builtConn{Connection: Connection{
		Kind: Kind(s.Kind.V), ID: s.ID.V, Alias: s.Alias.V, Active: true, Pos: s.Pos,
		Module: s.Module.V, Interpreter: s.Interpreter.V, ServerID: s.ServerID.V, URL: s.URL.V,
		TrustTraits: s.TrustTraits.V, TrustAnnotations: s.TrustAnnotations.V,
		Env: secrets(s.Env), Paths: map[string]writ.ToolPaths{}, Targets: map[string][]string{}, Timeout: s.Timeout.V,
		Namespaces: map[string]Namespace{}, limits: map[string]limit{}, blocked: map[string]string{},
		approval: map[string]ApprovalMode{},
		names:    map[string]Pos{}, fallback: a.ToolTimeout, refText: s.Ref.V, specText: s.Spec.V,
		Headers: secrets(s.Headers),
	}}
	if !a.Active {
		conn.Active, conn.Reason = false, a.Reason
	}
	c.aliasOf(conn, s)
	conn.path = conn.Alias
	if conn.path == "" {
		conn.path = "the connection"
	}
	if !s.Kind.Set {
		if !s.Kind.Bad {
			c.report.errorf(s.Pos, "one of python, mcp, http, named_service, go", "%s has no kind", conn.path)
		}
		return conn
	}
	c.kindKeysOnly(conn, s)
	switch conn.Kind {
	case KindPython:
		c.pythonConn(conn, s)
	case KindMCP:
		c.mcpConn(conn, s)
	case KindHTTP:
		c.httpConn(conn, s)
	case KindNamedService:
		c.namespaces(conn, s)
		c.inactive(conn, s.Kind.Pos, "kind named_service is not provided by this version")
	}
	c.ceiling(conn, s)
	c.toolSettings(conn, s)
	return conn
}

// inactive takes a connection out of the catalog and says so. The first reason stands.
func (c *checker) inactive(conn *builtConn, pos Pos, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	c.report.warnf(pos, "", "connection %s is inactive: %s", conn.path, reason)
	if conn.Active {
		conn.Active, conn.Reason = false, reason
	}
}

// aliasOf chooses the alias: alias, id, server_id, or the base name of ref or module.
func (c *checker) aliasOf(conn *builtConn, s *connShape) {
	conn.aliasPos = s.Alias.Pos
	if s.Alias.Bad {
		return
	}
	if !s.Alias.Set {
		conn.aliasPos = s.Pos
		base := strings.TrimSuffix(path.Base(strings.ReplaceAll(s.Ref.V, `\`, "/")), ".py")
		for _, v := range []val[string]{s.ID, s.ServerID, {V: base, Pos: s.Ref.Pos, Set: s.Ref.Set},
			{V: s.Module.V[strings.LastIndex(s.Module.V, ".")+1:], Pos: s.Module.Pos, Set: s.Module.Set}} {
			if v.Set {
				conn.Alias, conn.aliasPos = v.V, v.Pos
				break
			}
		}
	}
	switch {
	case conn.Alias == "" && !s.ID.Bad && !s.ServerID.Bad && !s.Ref.Bad && !s.Module.Bad:
		c.report.errorf(s.Pos, "give it an alias", "the connection has no alias and nothing to take one from")
	case conn.Alias == reservedAlias:
		c.report.errorf(conn.aliasPos, "choose another alias", "alias %s belongs to the built-in tools", reservedAlias)
	case conn.Alias != "" && !validAlias.MatchString(conn.Alias):
		c.report.errorf(conn.aliasPos, "set alias, of letters, digits, dashes and underscores", "%s cannot be an alias", quote(conn.Alias))
		conn.Alias = ""
	}
	if conn.ID == "" {
		conn.ID = conn.Alias
	}
}

// kindKeysOnly reports keys that the connection's kind does not have.
func (c *checker) kindKeysOnly(conn *builtConn, s *connShape) {
	keys := []at{{"ref", s.Ref.Pos}, {"module", s.Module.Pos}, {"env", s.Env.Pos}, {"interpreter", s.Interpreter.Pos},
		{"server_id", s.ServerID.Pos}, {"trust_traits", s.TrustTraits.Pos}, {"trust_annotations", s.TrustAnnotations.Pos},
		{"url", s.URL.Pos}, {"spec", s.Spec.Pos}, {"headers", s.Headers.Pos}, {"allow_private", s.AllowPrivate.Pos},
		{"allowed", s.Allowed.Pos}}
	if s.Namespaces != nil {
		keys = append(keys, at{"namespaces", s.Namespaces.Pos})
	}
	for _, k := range keys {
		if k.pos.IsZero() || slices.Contains(kindKeys[conn.Kind], k.key) {
			continue
		}
		if conn.Kind == KindNamedService && k.key == "allowed" {
			c.report.errorf(k.pos, "list operations under namespaces.NAME.allowed", "%s is of kind named_service, which has no allowed of its own", conn.path)
			continue
		}
		c.misplacedKind(conn.path, string(conn.Kind), k)
	}
}

func (c *checker) pythonConn(conn *builtConn, s *connShape) {
	if conn.Interpreter == "" {
		conn.Interpreter = "python3"
	}
	ref, module := s.Ref.present(), s.Module.present()
	switch {
	case ref && module:
		c.report.errorf(s.Module.Pos, "keep one of them", "%s has both ref and module", conn.path)
	case !ref && !module:
		c.report.errorf(s.Pos, "set ref to the Python file", "%s has neither ref nor module", conn.path)
	case s.Ref.Set:
		conn.Ref = absolute(c.dir, s.Ref.V)
		c.regularFile(s.Ref.V, s.Ref.Pos, conn.path+".ref")
	case s.Module.Set:
		c.inactive(conn, s.Module.Pos, "module %s is not provided by this version", s.Module.V)
	}
}

func (c *checker) mcpConn(conn *builtConn, s *connShape) {
	if !s.ServerID.present() {
		c.report.errorf(s.Pos, "name an entry of mcp.services", "%s has no server_id", conn.path)
		return
	}
	if !s.ServerID.Set {
		return
	}
	svc, ok := c.svcs[conn.ServerID]
	if !ok {
		reason := fmt.Sprintf("mcp.services has no entry %s", quote(conn.ServerID))
		hint := "declare it under mcp.services"
		if near := trait.Nearest(conn.ServerID, sortedKeys(c.svcs)); near != "" {
			hint = "did you mean " + near + "?"
		}
		c.report.warnf(s.ServerID.Pos, hint, "connection %s is inactive: %s", conn.path, reason)
		if conn.Active {
			conn.Active, conn.Reason = false, reason
		}
		return
	}
	conn.Service = &svc
}

func (c *checker) httpConn(conn *builtConn, s *connShape) {
	switch {
	case !s.Spec.present():
		c.report.errorf(s.Pos, "set spec to its OpenAPI document", "%s has no spec", conn.path)
	case s.Spec.Set && strings.Contains(s.Spec.V, "://"):
		c.report.errorf(s.Spec.Pos, "download it, and read it: it decides what the tools are", "%s.spec is an address, not a file", conn.path)
	case s.Spec.Set:
		conn.Spec = absolute(c.dir, s.Spec.V)
		c.regularFile(s.Spec.V, s.Spec.Pos, conn.path+".spec")
	}
	c.httpURL(conn, s)
	c.headers(conn.path, s.Headers)
	for _, v := range s.AllowPrivate.V {
		if !validPrivate(v.V) {
			c.report.errorf(v.Pos, "write an IP address, a range as 10.0.0.0/8, or a host name", "%s.allow_private has %s", conn.path, quote(v.V))
			continue
		}
		conn.AllowPrivate = append(conn.AllowPrivate, v.V)
	}
}

// httpURL checks the base address. Credentials go nowhere but to an address of the configuration.
func (c *checker) httpURL(conn *builtConn, s *connShape) {
	if !s.URL.present() && len(s.Headers.Entries) > 0 {
		c.report.errorf(s.Headers.Pos, "set url: the document does not decide who gets them", "%s has headers and no url", conn.path)
	}
	if u := c.address(conn.path+".url", s.URL); u != nil && (u.RawQuery != "" || u.Fragment != "") {
		c.report.errorf(s.URL.Pos, "leave them out", "%s.url has a query or a fragment", conn.path)
	}
}

// address checks an http or https address, without showing it; nil where there is none.
func (c *checker) address(path string, v val[string]) *url.URL {
	if !v.Set {
		return nil
	}
	u, err := url.Parse(v.V)
	switch {
	case err != nil || u.Hostname() == "":
		c.report.errorf(v.Pos, "write an http:// or https:// address", "%s is no address", path)
		return nil
	case u.User != nil:
		c.report.errorf(v.Pos, "put them into headers", "%s has credentials in it", path)
	}
	return u
}

// headers checks the names of headers.
func (c *checker) headers(path string, headers dict[val[Secret]]) {
	seen := map[string]bool{}
	for _, h := range headers.Entries {
		name := strings.ToLower(h.Key)
		switch {
		case !validHeader.MatchString(h.Key):
			c.report.errorf(h.Pos, "", "%s.headers: %s cannot be the name of a header", path, quote(h.Key))
		case seen[name]:
			c.report.errorf(h.Pos, "keep one of them", "%s.headers has %s twice; case does not matter", path, h.Key)
		}
		seen[name] = true
	}
}

var (
	validHeader = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	validName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)
)

func validPrivate(s string) bool {
	if _, err := netip.ParsePrefix(s); err == nil {
		return true
	}
	_, err := netip.ParseAddr(s)
	return err == nil || validName.MatchString(s)
}

// ceiling reads allowed. Without it a file or registration of the administrator's own is open as a whole; a server,
// which decides for itself what it offers, never is.
func (c *checker) ceiling(conn *builtConn, s *connShape) {
	if conn.Kind == KindNamedService || s.Allowed.Bad {
		return
	}
	if s.Allowed.Set {
		conn.Allowed, conn.AllowAll = c.names(conn.path+".allowed", s.Allowed.V, func(v val[string]) {
			conn.names[v.V] = v.Pos
			if rest, ok := strings.CutPrefix(v.V, conn.Alias+"."); ok && conn.Alias != "" {
				c.report.errorf(v.Pos, "names are without the alias: write "+rest, "%s.allowed has the name %s", conn.path, quote(v.V))
			}
		})
		conn.strict = !conn.AllowAll
		return
	}
	switch conn.Kind {
	case KindPython, KindGo:
		conn.AllowAll = true
		if conn.Module == "" {
			c.report.warnf(s.Pos, "list the tools the agent needs", "%s has no allowed: every tool it has may be called", conn.path)
		}
	default:
		c.report.errorf(s.Pos, "list the tools, or write ['*'] for all the server has", "%s has no allowed", conn.path)
	}
}

// names checks one allowed list: no repeats, and "*" stands alone.
func (c *checker) names(path string, list []val[string], each func(val[string])) (allowed []string, all bool) {
	seen := map[string]bool{}
	for _, v := range list {
		switch {
		case v.V == trait.Any && len(list) > 1:
			c.report.errorf(v.Pos, "keep '*' or the names", "%s has '*' beside names", path)
			continue
		case v.V == trait.Any:
			return nil, true
		case seen[v.V]:
			c.report.errorf(v.Pos, "keep one of them", "%s has %s twice", path, quote(v.V))
			continue
		case strings.ContainsFunc(v.V, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) || len(v.V) > 128:
			c.report.errorf(v.Pos, "a name has no spaces and at most 128 bytes", "%s has the name %s", path, quote(v.V))
			continue
		}
		seen[v.V] = true
		each(v)
		allowed = append(allowed, v.V)
	}
	slices.Sort(allowed)
	return allowed, false
}
