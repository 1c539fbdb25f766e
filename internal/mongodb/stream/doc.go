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
package stream
