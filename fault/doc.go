// Package fault holds the errors that reach a person. Each has a stable code (STRM-…), a sentence
// about the problem, and a remedy.
//
// A package that meets such a condition returns fault.New(code, cause); the command line, /health
// and the notices show code, cause and remedy, `streamer explain CODE` and docs/codes.md show the
// whole entry of the catalogue. Codes are never reused and never change their meaning; scripts and
// alerts may match on them.
//
// The package imports nothing of ours, so that every package may use it.
package fault
