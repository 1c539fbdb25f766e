// Package stream opens change streams for oplog.Log.
//
// A stream waits for events with TryNext and a maximum await time, never with a short deadline,
// because a context that ends inside a wait kills the stream. It reopens itself, at most once a
// second and with jittered backoff after failures. This holds for the driver's own resumption
// inside TryNext as well as for ours after it.
//
//	open ──► read ──reply──► read
//	  ▲        │ transient (network, election, cursor gone): back off
//	  ├────────┤ token refused: by operation time, once
//	  └────────┤ event too large: with one event a reply, then with less of that event, then after it
//	           │ position lost: on another member that has it; on none: oplog.ErrPositionLost
//	           └ fatal (rights, malformed token): fault.Error
//
// # Progress counts only after proof
//
// When a stream is reopened at an event token that the oplog has lost, a real server answers with
// empty replies whose post-batch tokens move past the loss; the error comes only with the next
// event. So after every opening, by the driver or by us, progress counts only when the first oplog
// entry, read after the opening, is not later than the position, or when the first event has
// arrived. Where the oplog cannot be read, through mongos or because the user lacks the right,
// streams are opened by time, which the server checks. A stream that must be opened after a token,
// because an invalidate has ended it, is proven by a second stream, opened by time.
//
// # Not obvious, and the tests that guard it
//
//   - A stream that is reopened at a lost token opens silently and reports progress; progress is
//     believed only when the position is known to be in the log
//     (stream.TestSilentOpeningOfALostPositionIsSeenThrough,
//     stream.TestLogThatWrapsWhileTheDriverResumesIsSeenThrough)
//   - A post-batch token of MongoDB 9.0 may be one that cannot be resumed, and may go back after a
//     resume: a refused token is opened by its time, and progress never goes back
//     (TestPostBatchTokensThatCannotBeResumed)
//   - The driver resumes inside a read without a limit; its openings pass our gate
//     (stream.TestReopeningIsHeldBack)
//   - Without access to the oplog only an opening by time is checked by the server, also after the
//     driver has resumed; after an invalidate another stream proves it
//     (stream.TestBlindStreamThatTheDriverHasResumedSeesALoss,
//     stream.TestBlindStreamSeesALossBehindADroppedDatabase)
//   - A message that an event is too large does not name the event reliably: the log is read again
//     one event at a time, and the next one that fails is it
//     (stream.TestLargeEventLeavesItsBatchWhole, stream.TestLadder)
//   - Nothing resumes between two fragments of an event: the server may split it differently the
//     next time (stream.TestSplitsThatVaryAreReadAgain)
//   - A context that ends inside a wait leaves the cursor on the server; the wait's context
//     outlives it a little (stream.TestClosedStreamLeavesNothingOnTheServer)
//   - mongos holds a change until every shard is past it, and nobody can see the held changes:
//     while the stream's position is earlier than the cluster's time, changes may wait
//     (stream.TestTickLetsChangesPassThatWaitForOtherShards,
//     stream.TestTicksRestWhereNothingMayWait)
package stream
