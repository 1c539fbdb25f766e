// Package stream opens change streams for oplog.Log.
//
// A stream waits for events with TryNext and a maximum await time, never with a short deadline,
// because a context that ends inside a wait kills the stream. It reopens itself: whether the driver
// resumes inside TryNext or we do after it, at most once a second, with jittered back-off when that
// fails.
//
//	open ──► read ──reply──► read
//	  ▲        │ transient (network, election, cursor gone): back off
//	  ├────────┤ token refused: by operation time, once
//	  └────────┤ event too large: with one event a reply, then with less of that event, then behind it
//	           │ position dead: on another member that has it; on none: oplog.ErrPositionLost
//	           └ fatal (rights, malformed token): fault.Error
//
// # Progress is believed late
//
// A real server answers a stream that was reopened at a lost event token with silence and with
// post-batch tokens that move on past the loss; the error comes only with the next event. So after
// every opening, whoever did it, progress counts only when the log's first entry, read after the
// opening, is not younger than the position, or when the first event has come. Where the log cannot
// be looked at, through mongos or for want of the right, streams are opened by time, which the
// server checks; one that must be opened behind a token, because an invalidate has ended it, is
// proven by opening another one by time.
package stream
