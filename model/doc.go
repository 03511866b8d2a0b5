// Package model holds the adapters of the model providers, one package each, and the tests that they share: each
// fixture of testdata/wire is played to the real SDK and to the real runtime. docs/providers.md has a row for each.
package model
