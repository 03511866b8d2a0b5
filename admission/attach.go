package admission

import (
	"context"
	"fmt"

	"writ/participant"
)

// Harness is what runs one invocation: a loop that asks a model and calls tools, or anything else. It admits each tool
// action on the port before it has any effect. What it returns is what became of the invocation; an error or a panic
// means that it raised.
type Harness interface {
	Act(ctx context.Context, port *Port) (Ending, error)
}

// Attacher is a harness that is handed its port before the invocation begins. The port is inactive then: its methods
// answer invocation_inactive.
type Attacher interface {
	AttachInvocationToolActions(port *Port)
}

// Register refuses a runtime whose manifest claims what it cannot do: see participant.Register for the rules. rt is the
// runtime; a claim needs an Attacher. It returns *participant.Fault errors, joined.
func Register(rt any, m participant.Manifest, all ...participant.Compiled) error {
	_, attaches := rt.(Attacher)
	return participant.Register(m, attaches, all...)
}

// Invoke runs one invocation of a harness: attached, begun durably, run, and closed with its history, whatever the harness
// does. When attaching panics nothing is begun and the attempt is not consumed. block makes the results of the actions
// that the close settles; nil = none.
func (l *Ledger) Invoke(ctx context.Context, s Start, h Harness, block Block) (Ending, error) {
	p, b, err := l.prepare(ctx, s)
	if err != nil {
		return Ending{}, err
	}
	if a, ok := h.(Attacher); ok {
		if err := attach(a, p); err != nil {
			return Ending{}, err
		}
	}
	if err := l.begin(ctx, p, b); err != nil {
		return Ending{}, err
	}
	end, raised := act(ctx, h, p)
	if err := p.End(ctx, end, block); err != nil {
		return end, err
	}
	return end, raised
}

// attach hands the port out before anything of it is durable. A port that is not taken stays inactive for ever.
func attach(a Attacher, p *Port) (err error) {
	defer func() {
		if r := recover(); r != nil {
			p.Drain()
			err = fmt.Errorf("admission: attaching: %v", r)
		}
	}()
	a.AttachInvocationToolActions(p)
	return nil
}

// act runs the harness. A panic is an error, and the ending is the zero one: it raised.
func act(ctx context.Context, h Harness, p *Port) (end Ending, err error) {
	defer func() {
		if r := recover(); r != nil {
			end, err = Ending{}, fmt.Errorf("admission: the harness panicked: %v", r)
		}
	}()
	if end, err = h.Act(ctx, p); err != nil {
		end = Ending{}
	}
	return end, err
}
