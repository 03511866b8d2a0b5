package server

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"writ/admission"
	"writ/store"
)

// TokenRequest asks for an API token.
type TokenRequest struct {
	Participant string        // its name, or Everybody
	Name        string        // for people
	Life        time.Duration // 0 = for ever
}

// Desk makes, lists and revokes API tokens. A server sees at once what it does: it looks every token up in the store.
type Desk struct {
	Store         store.Store
	Tenant, Owner string
	Now           func() time.Time
}

// Errors of a desk, for callers to branch on.
var (
	ErrTokenInvalid = errors.New("server: a token needs a participant's name or *, a name of at most 200 bytes, and a time to come")
	ErrTokenUnknown = errors.New("server: there is no such token")
)

// Create makes a token and returns its text, which is stored nowhere.
func (d Desk) Create(ctx context.Context, r TokenRequest) (t store.Token, text string, err error) {
	if r.Participant == "" || len(r.Participant) > maxID || len(r.Name) > 200 || !utf8.ValidString(r.Participant+r.Name) || r.Life < 0 {
		return t, "", ErrTokenInvalid
	}
	text = NewToken()
	t = store.Token{ID: admission.RandomID("tok_"), Kind: store.TokenAPI, Hash: HashToken(text), Tenant: d.Tenant, Owner: d.Owner,
		Subject: r.Participant, Name: r.Name, Created: d.Now()}
	if r.Life > 0 {
		t.Expires = t.Created.Add(r.Life)
	}
	return t, text, d.write(ctx, store.TokenWrite{Token: t})
}

// List returns all API tokens, revoked and expired ones too, the oldest first.
func (d Desk) List(ctx context.Context) ([]store.Token, error) {
	return d.Store.Tokens(ctx, store.TokenAPI)
}

// Revoke ends a token at once, for good. Invocations that it has opened go on under their own tokens.
func (d Desk) Revoke(ctx context.Context, id string) (store.Token, error) {
	all, err := d.List(ctx)
	if err != nil {
		return store.Token{}, err
	}
	for _, t := range all {
		if t.ID != id {
			continue
		}
		if t.Revoked.IsZero() {
			t.Revoked = d.Now()
			err = d.write(ctx, store.TokenWrite{Token: t, Update: true})
		}
		return t, err
	}
	return store.Token{}, ErrTokenUnknown
}

func (d Desk) write(ctx context.Context, w store.TokenWrite) error {
	return store.Commit(ctx, d.Store, &store.Batch{ID: admission.RandomID("b_"), Time: d.Now(), Tokens: []store.TokenWrite{w}})
}

// Usable reports whether a token can be used.
func Usable(t store.Token, now time.Time) bool {
	return t.Revoked.IsZero() && (t.Expires.IsZero() || now.Before(t.Expires))
}
