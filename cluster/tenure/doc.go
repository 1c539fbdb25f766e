// Package tenure keeps the terms of one claim: how long the claim can be relied on ([Trust]), and which terms have begun under it, have
// ended, and have been given back ([Holding]).
//
//	begun ──► runs ──► over (taken, refused, or all of them at once) ──► given back ──► claimed again, not before a second has passed
//
// It knows nothing of where claims are made; whoever makes them says what became of them, and by which reading of a clock that counts
// suspension.
package tenure
