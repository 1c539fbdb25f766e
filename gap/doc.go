// Package gap decides whether a stretch of the log was, or may have been, missed.
//
// A stretch is certainly lost when the log no longer holds a position (a resume is rejected, or the
// position is later than the server). It is suspected when cluster time jumps between two points of
// progress without a proof that the stream was continuous. A quiet stretch is not a gap: a stream
// that was never interrupted, or whose position was found in the log again, may jump by any time.
//
// The package is pure: no goroutines, no clock, no I/O.
//
// # Not obvious, and the tests that guard it
//
//   - A jump of cluster time counts only where continuity is unproven: quiet hours are no gap, and
//     a suspect stretch is read again (oplog.TestSuspectJumpIsReadAgain,
//     oplog.TestQuietHoursAreNoJumps)
package gap
