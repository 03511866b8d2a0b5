package server

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"writ/store"
)

// Beginnings of the tokens' texts: a person sees which is which, and a scanner finds one that leaked.
const (
	apiPrefix        = "writ_"
	invocationPrefix = "writ_inv_"
	maxToken         = 256
)

// Everybody is the subject of a token for all participants.
const Everybody = "*"

// startID names the per-start token.
const startID = "start"

// NewToken makes the text of an API token, or of a start.
func NewToken() string { return apiPrefix + strings.ToLower(rand.Text()) }

// HashToken is what is stored of a token.
func HashToken(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// invocationToken is the token of an invocation. It is derived, so that an equal open gets it again though only its hash
// is stored.
func (s *Server) invocationToken(invocation, scope, key string) string {
	m := hmac.New(sha256.New, s.cfg.Key)
	for _, part := range []string{"invocation token", invocation, scope, key} {
		fmt.Fprintf(m, "%d:%s", len(part), part)
	}
	return invocationPrefix + hex.EncodeToString(m.Sum(nil))
}

// caller is who asks, by the token.
type caller struct {
	id            string // of the token
	tenant, owner string
	participant   string // name, or Everybody; empty for an invocation's token
	invocation    string // of an invocation's token
}

// acts reports whether the caller may open invocations of the participant and see its actions.
func (c caller) acts(name string) bool {
	return c.invocation == "" && (c.participant == Everybody || c.participant == name)
}

// caller finds out who asks. It tells neither whether a token exists nor what is wrong with it.
func (s *Server) caller(ctx context.Context, authorization string) (caller, error) {
	refused := fault(FaultToken, "send Authorization: Bearer TOKEN; writ token create makes one", "a valid token is required")
	scheme, text, ok := strings.Cut(authorization, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || text == "" || len(text) > maxToken {
		return caller{}, refused
	}
	hash := HashToken(text)
	if s.cfg.StartToken != "" && same(hash, HashToken(s.cfg.StartToken)) {
		return caller{id: startID, tenant: s.cfg.Tenant, owner: s.cfg.Owner, participant: Everybody}, nil
	}
	t, err := s.cfg.Store.Token(ctx, hash)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return caller{}, refused
	case err != nil:
		return caller{}, s.broken("reading a token", err)
	case !same(hash, t.Hash) || !Usable(t, s.cfg.Now()):
		return caller{}, refused
	}
	c := caller{id: t.ID, tenant: t.Tenant, owner: t.Owner}
	switch t.Kind {
	case store.TokenAPI:
		c.participant = t.Subject
	case store.TokenInvocation:
		c.invocation = t.Subject
	default:
		return caller{}, refused
	}
	return c, nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// holder is the caller with the token of this very invocation.
func (s *Server) holder(ctx context.Context, authorization, invocation string) (caller, error) {
	c, err := s.caller(ctx, authorization)
	switch {
	case err != nil:
		return c, err
	case c.invocation == "":
		return c, fault(FaultForbidden, "send the invocation_token that opening it has answered", "this takes the token of an invocation, not an API token")
	case c.invocation != invocation:
		return c, absent("invocation")
	}
	return c, nil
}

// broken logs what went wrong inside and tells nobody outside about it.
func (s *Server) broken(doing string, err error) *Fault {
	s.cfg.Log.Error("a request could not be answered", "doing", doing, "error", err)
	return fault(FaultUnavailable, "try again", "the store does not answer")
}
