package admission

import (
	"slices"
	"strings"
	"unicode/utf8"

	"writ"
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

	prefixContract = "participant.action-contract."
	prefixBoundary = "participant.observation-boundary."
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
	if len(strings.TrimPrefix(r.Contract, prefixContract)) == len(r.Contract) || r.Contract == prefixContract ||
		len(strings.TrimPrefix(r.Boundary, prefixBoundary)) == len(r.Boundary) || r.Boundary == prefixBoundary {
		return false
	}
	return len(r.Targets) > 0 && references(r.Targets, maxTargets)
}

// recordable reports whether the ledger can hold the outcome: a success without a failure class, or a failure with one.
func (o Outcome) recordable() bool {
	switch o.State {
	case writ.Succeeded:
		if o.Failure != "" {
			return false
		}
	case writ.Failed:
		if !failureClass(o.Failure) {
			return false
		}
	default:
		return false
	}
	return text(o.ResultDigest, 0, maxDigest) && references(o.Evidence, maxEvidence)
}

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
