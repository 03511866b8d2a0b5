package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"writ/trait"
)

// checker checks what the shapes cannot say and builds the result. It goes on after errors, so that one run finds
// them all; what it builds after an error is thrown away.
type checker struct {
	report *Report
	name   string // the file, or the first of several, for problems of the whole
	dir    string
	roots  *rootsShape
	tree   *node
	models Models
	svcs   map[string]Service
}

var agentID = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)

// config builds the whole result.
func (c *checker) config() *Config {
	c.models = c.buildModels()
	c.svcs = c.buildServices()
	out := &Config{Models: c.models, Services: c.svcs, agents: map[string]*Agent{}}
	if p := c.roots.Store.Path; p.Set {
		out.StorePath = absolute(c.dir, p.V)
	}
	for i := range c.roots.React.Direct.Entries {
		c.checkBlock(&c.roots.React.Direct.Entries[i].Val)
	}
	for i := range c.roots.React.Agents.Entries {
		c.checkBlock(&c.roots.React.Agents.Entries[i].Val)
	}
	c.checkBlock(&c.roots.React.blockShape)

	consumer := &c.roots.Surfaces.AsConsumer
	for i := range consumer.Agents.Entries {
		e := &consumer.Agents.Entries[i]
		if !agentID.MatchString(e.Key) {
			c.report.errorf(e.Pos, "use up to 64 letters, digits, dots, dashes and underscores, a letter or digit at both ends",
				"%s cannot be an agent id", quote(e.Key))
		}
		out.agents[e.Key] = c.buildAgent(e.Key, e.Pos, &e.Val)
	}
	c.admission(out)
	if len(consumer.Agents.Entries)+len(c.roots.Participants.Entries) == 0 {
		c.report.warnf(Pos{File: c.name}, "declare one under surfaces.as_consumer.agents", "no agent is declared")
	}
	if name := consumer.DefaultAgent; name.Set {
		out.DefaultAgent = name.V
		if _, ok := out.agents[name.V]; !ok {
			c.report.errorf(name.Pos, trait.DidYouMean(name.V, out.Agents()),
				"surfaces.as_consumer.default_agent: no agent %s is declared", quote(name.V))
		}
	}
	return out
}

// buildModels checks providers and prices.
func (c *checker) buildModels() Models {
	out := Models{providers: map[string]Provider{}, Prices: map[string]Price{}}
	for _, e := range c.roots.Models.Providers.Entries {
		if e.Val.Malformed {
			continue
		}
		path := "models.providers." + e.Key
		p := Provider{Name: e.Key, Kind: e.Val.Kind.V, APIKey: e.Val.APIKey.V, BaseURL: e.Val.BaseURL.V,
			Timeout: e.Val.Timeout.V, Pos: e.Pos}
		if strings.Contains(e.Key, "/") || e.Key == strings.TrimSuffix(recordedPrefix, ":") {
			c.report.errorf(e.Pos, "choose another name", "%s cannot be the name of a provider", quote(e.Key))
		}
		implied, isKind := Models{}.Provider(e.Key)
		switch {
		case e.Val.Kind.Bad:
		case p.Kind == "" && isKind:
			p.Kind = implied.Kind
		case p.Kind == "":
			c.report.errorf(e.Pos, "one of "+strings.Join(ProviderKinds(), ", "), "%s has no kind", path)
		}
		if !e.Val.APIKey.present() && p.BaseURL == "" {
			if usual, ok := (Models{}).Provider(p.Kind); ok {
				p.APIKey = usual.APIKey
			}
		}
		if p.APIKey.Literal() {
			c.report.warnf(e.Val.APIKey.Pos, "write ${VAR} or file:PATH", "%s.api_key stands in the file itself", path)
		}
		out.providers[e.Key] = p
	}
	for _, e := range c.roots.Models.Prices.Entries {
		provider, model, ok := strings.Cut(e.Key, "/")
		switch {
		case !ok || provider == "" || model == "":
			c.report.errorf(e.Pos, "write PROVIDER/MODEL", "models.prices has the key %s", quote(e.Key))
		default:
			c.knownProvider(out, provider, e.Pos, "models.prices")
		}
		out.Prices[e.Key] = Price{e.Val.Input.V, e.Val.Output.V, e.Val.CacheRead.V, e.Val.CacheWrite.V}
	}
	return out
}

func (c *checker) knownProvider(m Models, name string, pos Pos, path string) {
	if _, ok := m.Provider(name); !ok {
		c.report.errorf(pos, trait.DidYouMean(name, m.Providers()), "%s: no provider %s is configured under models.providers", path, quote(name))
	}
}

// buildServices checks the MCP servers: each has a command or a URL, and only what belongs to it.
func (c *checker) buildServices() map[string]Service {
	out := map[string]Service{}
	for i := range c.roots.MCP.Services.Entries {
		e := &c.roots.MCP.Services.Entries[i]
		s, path := &e.Val, "mcp.services."+e.Key
		if s.Malformed {
			continue
		}
		command, url := s.Command.present(), s.URL.present()
		switch {
		case command && url:
			c.report.errorf(e.Pos, "keep one of them", "%s has both command and url", path)
		case !command && !url:
			c.report.errorf(e.Pos, "give it a command to start or a url to connect to", "%s has neither command nor url", path)
		case command:
			c.misplaced(path, "url", at{"headers", s.Headers.Pos})
		default:
			c.misplaced(path, "command", at{"args", s.Args.Pos}, at{"env", s.Env.Pos}, at{"cwd", s.Cwd.Pos})
		}
		if command && strings.TrimSpace(s.Command.V) == "" && !s.Command.Bad {
			c.report.errorf(s.Command.Pos, "name the program to start", "%s.command is empty", path)
		}
		svc := Service{ID: e.Key, Command: s.Command.V, Args: texts(s.Args.V), Env: secrets(s.Env), URL: s.URL.V,
			Headers: secrets(s.Headers), Timeout: s.Timeout.V, Pos: e.Pos, cwdText: s.Cwd.V}
		if s.Cwd.Set {
			svc.Cwd = absolute(c.dir, s.Cwd.V)
		}
		c.address(path+".url", s.URL)
		c.headers(path, s.Headers)
		out[e.Key] = svc
	}
	return out
}

// at is a key with its place; a zero place means that the key is absent.
type at struct {
	key string
	pos Pos
}

// misplaced reports the keys that make sense only beside another one.
func (c *checker) misplaced(path, needs string, keys ...at) {
	for _, k := range keys {
		if !k.pos.IsZero() {
			c.report.errorf(k.pos, "drop it", "%s.%s is used only with %s", path, k.key, needs)
		}
	}
}

// checkBlock checks one block of react, once, whichever agents use it.
func (c *checker) checkBlock(b *blockShape) {
	if b.MaxRounds.present() && b.MaxIterations.present() {
		c.report.errorf(b.MaxIterations.Pos, "keep max_rounds", "max_iterations and max_rounds mean the same")
	}
	if !b.MaxRounds.present() {
		b.MaxRounds = b.MaxIterations
	}
	if b.Model.Set {
		c.checkModel(b.Model)
	}
	if b.RoleModels != nil {
		for i := range b.RoleModels.Entries {
			e := &b.RoleModels.Entries[i]
			c.checkRoleModel(&e.Val, e.Pos, "role_models."+e.Key)
		}
	}
	for i := range b.SupportedModels.V {
		s := &b.SupportedModels.V[i]
		c.checkRoleModel(&s.roleModelShape, s.Pos, "supported_models")
	}
	for i := range b.FallbackModels.V {
		m := &b.FallbackModels.V[i]
		c.checkRoleModel(m, b.FallbackModels.Pos, "fallback_models")
	}
	c.checkSubagents(b.Subagents)
	c.checkCache(b.Cache)
	for _, r := range []struct {
		key string
		raw *raw
	}{{"skills", b.Skills}, {"budgets", b.Budgets}} {
		if r.raw != nil && !r.raw.empty() {
			c.report.warnf(r.raw.node.pos, "", "%s is not provided by this version yet", r.key)
		}
	}
}

// empty reports whether a raw value asks for nothing.
func (r *raw) empty() bool {
	if r == nil || r.node == nil {
		return true
	}
	n := r.node
	return n.kind == kindNull || n.kind == kindBool && n.text == "false" ||
		(n.kind == kindList || n.kind == kindMap) && n.size == 1
}

func (c *checker) checkModel(v val[string]) {
	file, recorded := strings.CutPrefix(v.V, recordedPrefix)
	if !recorded {
		provider, _, _ := strings.Cut(v.V, "/")
		c.knownProvider(c.models, provider, v.Pos, "model")
		return
	}
	c.regularFile(file, v.Pos, "model")
}

// regularFile checks that a file the configuration names is there.
func (c *checker) regularFile(name string, pos Pos, path string) {
	info, err := os.Stat(absolute(c.dir, name))
	switch {
	case err != nil:
		c.report.errorf(pos, "the path is relative to the configuration file", "%s: %s: %s", path, filepath.ToSlash(name), readProblem(err))
	case !info.Mode().IsRegular():
		c.report.errorf(pos, "", "%s: %s is not a regular file", path, filepath.ToSlash(name))
	}
}

func (c *checker) checkRoleModel(m *roleModelShape, pos Pos, path string) {
	if m.Malformed {
		return
	}
	if !m.Model.present() {
		c.report.errorf(pos, "name the model", "%s has no model", path)
	}
	if m.Provider.Set {
		c.knownProvider(c.models, m.Provider.V, m.Provider.Pos, path)
	}
}

func (c *checker) checkSubagents(s *subagentsValue) {
	if s == nil {
		return
	}
	for i := range s.Mapping.Models.Entries {
		e := &s.Mapping.Models.Entries[i]
		if _, shipped := shippedModels()[e.Key]; !shipped {
			c.checkRoleModel(&e.Val.roleModelShape, e.Pos, "subagents.models."+e.Key)
		} else if e.Val.Provider.Set {
			c.knownProvider(c.models, e.Val.Provider.V, e.Val.Provider.Pos, "subagents.models."+e.Key)
		}
	}
	offered := s.Switch.Set && s.Switch.V || s.Mapping.Allowed.Set && s.Mapping.Allowed.V
	if offered {
		c.report.warnf(s.Pos, "", "subagents is not provided by this version yet: nothing is delegated")
	}
}

func (c *checker) checkCache(s *cacheShape) {
	if s == nil || s.SelectionChange.Pos.IsZero() {
		return
	}
	m := &s.SelectionChange.Mapping
	allowed := texts(m.Allowed.V)
	for _, v := range []struct {
		key string
		val val[string]
	}{{"default", m.Default}, {"model_switch", m.ModelSwitch}, {"capability_toggle", m.CapabilityToggle}} {
		if v.val.Set && len(allowed) > 0 && !slices.Contains(allowed, v.val.V) {
			c.report.errorf(v.val.Pos, "add it to allowed", "selection_change_policy.%s is %s, which allowed does not have", v.key, v.val.V)
		}
	}
	c.report.warnf(s.SelectionChange.Pos, "", "cache.selection_change_policy is not provided by this version yet")
}

func texts(list []val[string]) []string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		out = append(out, v.V)
	}
	return out
}

func secrets(m dict[val[Secret]]) map[string]Secret {
	out := make(map[string]Secret, len(m.Entries))
	for _, e := range m.Entries {
		out[e.Key] = e.Val.V
	}
	return out
}
