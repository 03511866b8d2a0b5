package admission_test

import (
	"context"
	"fmt"
	"time"

	"writ"
	"writ/admission"
	"writ/participant"
	"writ/store"
	"writ/store/memory"
)

// A harness of one's own: ask, start, run, settle. What is refused does not run; what is not known is said to be so.
func ExamplePort() {
	ctx := context.Background()
	st := memory.Open()
	err := st.Apply(ctx, &store.Batch{ID: "b1", Time: time0, Conversations: []store.ConversationWrite{
		{Create: true, Conversation: store.Conversation{ID: "chat", LeaseToken: 1}}}})
	if err != nil {
		panic(err)
	}
	const contract, boundary = "participant.action-contract.mail.send", "participant.observation-boundary.chat"
	ledger := admission.New(admission.Config{Store: st, Key: []byte("a key of the tenant")})
	port, err := ledger.Open(admission.Invocation{ID: "turn", Conversation: "chat", LeaseToken: 1, Compiled: participant.Compiled{
		Participant: "participant.behavior.clerk", Implementation: "clerk@1", Total: 16, Concurrent: 4,
		Bindings: []participant.Binding{{Affordance: "mail", Contract: contract, Boundaries: []string{boundary}, Targets: []string{"mailbox.me"}}},
		Offers:   []participant.Offer{{ID: "mail", Contract: contract, Implementation: "clerk@1"}}}})
	if err != nil {
		panic(err)
	}
	port.Activate()

	d := port.Admit(ctx, port.Request("call-1", "mail", contract, boundary, []string{"mailbox.me"}), admission.Slot{Tool: "mail.send"}, nil)
	if !d.Admitted {
		fmt.Println("not run:", d.Refusal)
		return
	}
	grant, _ := port.Dispatch(ctx, d.ActionID) // nil when refused
	if !grant.Start() {
		port.Abandon(ctx, d.ActionID, "not_granted", nil)
		return
	}
	if err := sendMail(grant.Key()); err != nil {
		port.ReportUnknown(ctx, d.ActionID, "connection_lost", nil)
	} else {
		port.Complete(ctx, d.ActionID, admission.Outcome{State: writ.Succeeded}, nil)
	}
	fmt.Println("settled:", port.Rows()[0].State)
	again, refused := port.Dispatch(ctx, d.ActionID)
	fmt.Println("again:", again.Start(), refused.Code)
	// Output:
	// settled: succeeded
	// again: false state_conflict
}

var time0 = time.Date(2026, 7, 12, 9, 0, 0, 0, time.UTC)

func sendMail(string) error { return nil }
