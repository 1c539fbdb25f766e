// Package gap decides whether a stretch of the log was, or may have been, missed.
//
// A [Span] is such a stretch: everything behind From and before To. It is certain when the log no longer reaches back to a position
// (a resume refused, a position ahead of the server). It is suspected when cluster time jumps between two points of progress while
// nothing proves that the stream was continuous there. Quiet is no gap: a stream that was never interrupted, or one whose
// position was found in the log again, may jump as far as it likes.
//
// The package is pure: no goroutines, no clock, no I/O.
package gap
