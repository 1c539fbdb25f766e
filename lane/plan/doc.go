// Package plan decides which catch-up serves which cursor, where the tail begins, and where a stream is opened behind a position that is lost.
// It is pure.
package plan
