package gateway

import (
	"context"
	"errors"
	"strings"

	"writ"
)

// Listed is one upstream as the gateway sees it.
type Listed struct {
	Alias    string
	Tools    []ListedTool
	Problems []writ.Problem // what is left out, and why
	Err      error          // it cannot be reached
}

// ListedTool is a tool that clients may call.
type ListedTool struct {
	Name   string // as clients know it
	ID     string // as the ledger knows it
	Traits writ.Traits
}

// Inventory connects to every upstream and tells what clients may use and what is left out.
func (g *Gateway) Inventory(ctx context.Context) ([]Listed, error) {
	s, err := g.openSession(ctx, nil, "inventory", true, nil)
	if err != nil {
		return nil, err
	}
	defer s.shut()
	c := s.known()
	out := make([]Listed, len(s.ups))
	for i, up := range s.ups {
		out[i].Alias = up.alias
		if h := up.client.Health(); !h.Running {
			out[i].Err = errors.New(h.LastError)
		}
		for _, p := range c.problems {
			if p.Tool == up.alias || strings.HasPrefix(p.Tool, up.alias+".") {
				out[i].Problems = append(out[i].Problems, p)
			}
		}
	}
	for _, item := range c.order {
		for i, up := range s.ups {
			if item.up == up {
				out[i].Tools = append(out[i].Tools, ListedTool{Name: item.name, ID: item.id(), Traits: item.traits})
			}
		}
	}
	return out, nil
}
