package participant

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// Prefixes of compiled addresses.
const (
	PrefixContract = "participant.action-contract."
	PrefixBoundary = "participant.observation-boundary."

	derivedPrefix = "target."
	runtimePrefix = "provision."
)

// Address is the address of a participant.
func Address(name string) string { return "participant.behavior." + Segment(name) }

// SpecificationAddress is the address of a behavior specification.
func SpecificationAddress(spec string) string {
	return "participant.behavior-specification." + Segment(spec)
}

// AffordanceAddress is the address of a tool affordance of a behavior specification.
func AffordanceAddress(spec, affordance string) string {
	return SpecificationAddress(spec) + ".tool-affordance." + Segment(affordance)
}

// ContractAddress is the address of an action contract. Several parts are joined by dots.
func ContractAddress(parts ...string) string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = Segment(p)
	}
	return PrefixContract + strings.Join(out, ".")
}

// BoundaryAddress is the address of an observation boundary.
func BoundaryAddress(name string) string { return PrefixBoundary + Segment(name) }

// ScopeAddress is the execution scope of a behavior specification's autonomous policy.
func ScopeAddress(spec string) string { return "participant.autonomous-execution." + Segment(spec) }

// Target is the address of a target that was derived from a call's arguments, by its keyed digest.
func Target(digest string) string { return derivedPrefix + digest }

// IsSegment reports whether the name can be a part of a compiled address as it is, which an authored name has to be.
func IsSegment(name string) bool { return name != "" && Segment(name) == name }

// IsAddress reports whether s is a compiled address: at least two segments, joined by dots, in at most 2048 bytes.
func IsAddress(s string) bool {
	parts := strings.Split(s, ".")
	if len(s) > 2048 || len(parts) < 2 {
		return false
	}
	return !slices.ContainsFunc(parts, func(p string) bool { return !IsSegment(p) && p != "__private" })
}

// IsRuntimeAddress reports whether s is the address of something that an action can act on.
func IsRuntimeAddress(s string) bool { return strings.HasPrefix(s, runtimePrefix) && IsAddress(s) }

// Segment is one part of a compiled address: lower case letters, digits, "_" and "-", not empty, at most 64, a letter
// or digit first. A name that is not of this form gets one that is, with a digest that keeps different names apart.
func Segment(name string) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-':
			return r
		}
		return '-'
	}, strings.ToLower(name))
	s = strings.TrimLeft(s, "_-")
	if s == name && s != "" && len(s) <= 64 {
		return s
	}
	sum := sha256.Sum256([]byte(name)) // two names that only differ in what was changed stay two
	return "x" + s[:min(len(s), 50)] + "-" + hex.EncodeToString(sum[:5])
}
