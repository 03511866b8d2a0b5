package admission

import (
	"slices"
	"strings"
	"unicode/utf8"

	"writ"
	"writ/participant"
)

// Bounds of what a harness may say. They are row 0 of the order of checks: shapes only, nothing that depends on the
// invocation.
const (
	maxToolCallID = 256
	maxAddress    = 2048
	maxTargets    = 256
	maxDigest     = 256
	maxEvidence   = 256
	maxFailure    = 64
)

// wellFormed reports whether the request has the shape of one. Strings are valid UTF-8, so that two requests with one
// digest are one request.
func (r Request) wellFormed() bool {
	if !text(r.ToolCallID, 1, maxToolCallID) || r.Generation < 0 || !text(r.ArgumentDigest, 0, maxDigest) {
		return false
	}
	for _, s := range []string{r.Invocation, r.Participant, r.Episode, r.Implementation, r.Affordance, r.Contract, r.Boundary, r.Scope} {
		if !text(s, 1, maxAddress) {
			return false
		}
	}
	if !under(r.Contract, participant.PrefixContract) || !under(r.Boundary, participant.PrefixBoundary) {
		return false
	}
	return len(r.Targets) > 0 && references(r.Targets, maxTargets)
}

func under(address, prefix string) bool {
	return strings.HasPrefix(address, prefix) && len(address) > len(prefix)
}

// wellFormed reports whether the slot's claim and approval have the shape of ones.
func (s Slot) wellFormed() bool {
	if c := s.Claim; c != nil && (!text(c.Scope, 1, maxAddress) || !text(c.Key, 1, maxToolCallID) || !text(c.Digest, 1, maxDigest)) {
		return false
	}
	a := s.Approval
	return a == nil || (a.Approver == ByOwner || a.Approver == ByOperator) && a.Within >= 0
}

// recordable reports whether the ledger can hold the outcome: a success without a failure class, or a failure with one.
func (o Outcome) recordable() bool {
	switch o.State {
	case writ.Succeeded:
		if o.Failure != "" || o.Status != "" {
			return false
		}
	case writ.Failed:
		if !failureClass(o.Failure) || o.Status != "" && o.Status != StatusRejected && o.Status != StatusPartial {
			return false
		}
	default:
		return false
	}
	return text(o.ResultDigest, 0, maxDigest) && references(o.Evidence, maxEvidence)
}

// Statuses of a failed outcome that say more than its state.
const (
	StatusRejected = "rejected"
	StatusPartial  = "partial_success"
)

// failureClass reports whether s is a code: lower case letters, digits and "_", a letter first. No text of a tool or a
// provider gets into the ledger by this way.
func failureClass(s string) bool {
	if s == "" || len(s) > maxFailure || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' }) < 0
}

func text(s string, least, most int) bool {
	return len(s) >= least && len(s) <= most && utf8.ValidString(s)
}

// references reports whether the list holds at most so many different addresses.
func references(list []string, most int) bool {
	if len(list) > most {
		return false
	}
	for i, s := range list {
		if !text(s, 1, maxAddress) || slices.Contains(list[:i], s) {
			return false
		}
	}
	return true
}
