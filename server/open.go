package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"writ/admission"
	"writ/store"
)

// OpenRequest opens an invocation. Who opens it is said by the token alone.
type OpenRequest struct {
	Episode     string `json:"episode_id,omitempty" doc:"to go on with; without it there is a new one"`
	Lease       int    `json:"lease_seconds,omitempty" doc:"how long it may admit without being renewed: 1 to 3600, otherwise 300"`
	Observation string `json:"observation_point,omitempty" doc:"which outcomes have to name; without it the invocation's id"`
}

type openInput struct {
	Authorization string `header:"Authorization" hidden:"true"`
	Name          string `path:"participant" maxLength:"256"`
	Key           string `header:"Idempotency-Key" required:"true" minLength:"1" maxLength:"256" doc:"the same again, with the same body, answers with the same invocation"`
	Body          *OpenRequest
}

// Opened is an invocation with the token that acts for it.
type Opened struct {
	Invocation
	Token  string `json:"invocation_token" doc:"for the Authorization header of everything about this invocation"`
	Replay bool   `json:"replay,omitempty" doc:"the key was used before; this is what it had opened"`
}

type out[T any] struct{ Body T }

func (s *Server) open(ctx context.Context, in *openInput) (*out[Opened], error) {
	c, err := s.caller(ctx, in.Authorization)
	if err != nil {
		return nil, err
	}
	p := s.byName[in.Name]
	switch o, opaque := s.opaque[in.Name]; {
	case !c.acts(in.Name), p == nil && !opaque:
		return nil, absent("participant")
	case opaque:
		return nil, fault(FaultNotFound, o.Why, "participant %s has no port", in.Name)
	}
	body := OpenRequest{}
	if in.Body != nil {
		body = *in.Body
	}
	if f := body.check(); f != nil {
		return nil, f
	}
	if !utf8.ValidString(in.Key) {
		return nil, fault(FaultRequest, "", "Idempotency-Key: it is not valid UTF-8")
	}
	scope := "open:" + c.tenant + ":" + c.id
	claim := &store.Claim{Scope: scope, Key: in.Key, Digest: body.digest(in.Name)}
	if o, err := s.replay(ctx, claim); o != nil || err != nil {
		return o, err
	}
	if f := s.live.reserve(c.id, s.cfg.Open); f != nil {
		return nil, f
	}
	o, err := s.begin(ctx, c, p, body, claim)
	if err != nil {
		s.live.giveBack(c.id)
		if o, rerr := s.replay(ctx, claim); o != nil || rerr != nil { // an equal request was faster
			return o, rerr
		}
		return nil, err
	}
	return o, nil
}

func (b OpenRequest) check() *Fault {
	switch {
	case b.Lease < 0 || time.Duration(b.Lease)*time.Second > MaxLease:
		return fault(FaultRequest, "", "lease_seconds: it must be 1 to %d", int(MaxLease.Seconds()))
	case len(b.Observation) > maxObservation || !utf8.ValidString(b.Observation):
		return fault(FaultRequest, "", "observation_point: it has more than %d bytes", maxObservation)
	case len(b.Episode) > maxID:
		return fault(FaultRequest, "", "episode_id: it has more than %d bytes", maxID)
	}
	return nil
}

func (b OpenRequest) lease() time.Duration { return leaseOf(b.Lease) }

func leaseOf(seconds int) time.Duration {
	if seconds == 0 {
		return DefaultLease
	}
	return time.Duration(seconds) * time.Second
}

// digest tells requests under one key apart.
func (b OpenRequest) digest(name string) string {
	text, _ := json.Marshal([]any{name, b.Episode, b.lease().String(), b.Observation}) // strings only
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// begin makes the invocation durable and gives it a port.
func (s *Server) begin(ctx context.Context, c caller, p *served, body OpenRequest, claim *store.Claim) (*out[Opened], error) {
	if body.Episode != "" { // only the server makes ids
		conv, err := s.cfg.Store.Conversation(ctx, body.Episode)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil, absent("episode")
		case err != nil:
			return nil, s.broken("reading an episode", err)
		case conv.Tenant != c.tenant || conv.Owner != c.owner || conv.Agent != p.Name:
			return nil, absent("episode")
		}
	}
	now, id := s.cfg.Now(), s.cfg.NewID("inv_")
	in := &invocation{id: id, served: p, token: c.id, lease: now.Add(body.lease()), until: now.Add(s.cfg.Life)}
	in.due = in.lease
	text := s.invocationToken(id, claim.Scope, claim.Key)
	port, err := s.ledger.Begin(ctx, admission.Start{ID: id, Kind: store.KindHTTP, Tenant: c.tenant, Owner: c.owner, Agent: p.Name, Episode: body.Episode,
		Holder: s.cfg.Holder, Lease: in.lease, Compiled: p.Compiled, Observation: body.Observation, PolicyDigest: p.digest, ConfigDigest: p.digest,
		Claim: claim, Documents: []store.Document{{Digest: p.digest, Body: p.document}},
		Tokens: []store.TokenWrite{{Token: store.Token{ID: s.cfg.NewID("tok_"), Kind: store.TokenInvocation, Hash: HashToken(text), Tenant: c.tenant,
			Owner: c.owner, Name: p.Name, Created: now, Expires: in.until.Add(s.cfg.Late)}}}})
	switch {
	case errors.Is(err, admission.ErrBusy):
		return nil, fault(FaultBusy, "close that one, or wait until its lease ends", "the episode has another invocation under way")
	case errors.Is(err, admission.ErrOther):
		return nil, absent("episode")
	case errors.Is(err, store.ErrConflict):
		return nil, fault(FaultBusy, "try again", "the episode was taken by another invocation at the same time")
	case err != nil:
		return nil, s.broken("opening an invocation", err)
	}
	in.port = port
	s.live.add(in)
	s.wake()
	in.mu.Lock()
	defer in.mu.Unlock()
	return &out[Opened]{Opened{Invocation: in.portValues(), Token: text}}, nil
}

// replay answers what was opened under the key before; nil when nothing was.
func (s *Server) replay(ctx context.Context, claim *store.Claim) (*out[Opened], error) {
	have, err := s.cfg.Store.Claim(ctx, claim.Scope, claim.Key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, s.broken("reading an idempotency key", err)
	case have.Digest != claim.Digest:
		return nil, fault(FaultKey, "use a new key for another request", "the Idempotency-Key was used for another request")
	}
	v, err := s.values(ctx, have.Subject)
	if err != nil {
		return nil, err
	}
	return &out[Opened]{Opened{Invocation: v, Token: s.invocationToken(have.Subject, claim.Scope, claim.Key), Replay: true}}, nil
}

// values reads an invocation, open or over.
func (s *Server) values(ctx context.Context, id string) (Invocation, error) {
	if in := s.live.find(id); in != nil {
		in.mu.Lock()
		defer in.mu.Unlock()
		if !in.closed {
			return in.portValues(), nil
		}
	}
	t, err := s.cfg.Store.Turn(ctx, id)
	if err != nil {
		return Invocation{}, s.broken("reading an invocation", err)
	}
	op, err := s.ledger.Get(ctx, id)
	if err != nil {
		return Invocation{}, s.broken("reading an invocation", err)
	}
	return pastValues(t, op), nil
}
