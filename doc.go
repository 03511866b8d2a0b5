// Package writ holds the words of a governed agent runtime as Go types: traits, tools, models, ledger states and
// refusal codes. It does no I/O and imports nothing but the standard library; every other package of the module
// speaks in these types.
//
// The order of one tool call, from a declaration in YAML to a settled row, is told in docs/tour.md.
package writ
