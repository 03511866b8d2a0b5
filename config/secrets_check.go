package config

import "errors"

// CheckSecrets tries every secret that an agent or service of the configuration refers to and returns a warning for
// each that cannot be resolved. It shows no value. [Secret.Resolve] fails for the same ones when they are used.
func (c *Config) CheckSecrets(lookupEnv func(string) (string, bool)) []Problem {
	r := &Report{}
	check := func(path string, s Secret, pos Pos) {
		_, err := s.Resolve(lookupEnv)
		var missing *MissingError
		if !errors.As(err, &missing) {
			return
		}
		hint := "check the path"
		if missing.Var != "" {
			hint = "set " + missing.Var
		}
		if own := s.inside().pos; !own.IsZero() {
			pos = own
		}
		r.warnf(pos, hint, "%s: %s", path, missing.Error())
	}
	for _, name := range sortedKeys(c.Services) {
		s := c.Services[name]
		for _, k := range sortedKeys(s.Env) {
			check("mcp.services."+name+".env."+k, s.Env[k], s.Pos)
		}
		for _, k := range sortedKeys(s.Headers) {
			check("mcp.services."+name+".headers."+k, s.Headers[k], s.Pos)
		}
	}
	for _, name := range sortedKeys(c.Models.providers) {
		check("models.providers."+name+".api_key", c.Models.providers[name].APIKey, c.Models.providers[name].Pos)
	}
	for _, id := range c.Agents() {
		a := c.agents[id]
		for _, conn := range a.Connections {
			for _, k := range sortedKeys(conn.Env) {
				check(conn.Alias+".env."+k, conn.Env[k], conn.Pos)
			}
			for _, k := range sortedKeys(conn.Headers) {
				check(conn.Alias+".headers."+k, conn.Headers[k], conn.Pos)
			}
		}
		if _, configured := c.Models.providers[a.Model.Provider]; configured {
			continue
		}
		if p, ok := c.Models.Provider(a.Model.Provider); ok {
			check("the implied provider "+p.Name, p.APIKey, a.Pos)
		}
	}
	r.sort()
	return r.Warnings
}
