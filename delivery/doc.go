// Package delivery serves the oplog to sessions. Every subscriber is a [Session] of the [Hub],
// whatever its transport. The Hub matches each change once for all sessions, encodes it once in
// each form, and queues it for each session within its credit.
//
//	oplog ─► Hub: match once, encode once ─► live sessions ─► gRPC, SSE, stdout, sinks
//	oplog ─► a session that is catching up, at its own pace ─┘
//
// A session is a cursor over the whole oplog. On the live path the Hub's loop reads for it. A
// session without credit, or at an earlier position, catches up: it reads from its own position as
// soon as it has credit, and joins the live path between two replies when it has reached the Hub's
// position.
//
// # Batches
//
// A [Batch] is the next stretch of a session's stream: everything after the previous batch up to To
// that matches the session's subscriptions, in the order of the oplog, across all partitions of the
// session. Batches are numbered and acknowledged by number. A batch grows, within bounds, while the
// transport is busy; it never waits for more events while the transport is idle.
//
// A loss, a rewind, and a rename onto a watched collection are batches of their own in their place
// in the log. They are acknowledged like events and redelivered until they are.
//
// All entries of one position (a change, the documents that have left with it, in all forms) are
// one unit: they are in one batch. Losses and marks of snapshots name the namespaces that they
// concern. A document has left unless it is known that the subscriber does not have it; that it has
// nothing is never assumed.
//
// # Snapshots
//
// For each page of documents a session leaves the live path and pauses at the time at which the
// page is read; see hold.go and package snapshot.
//
// # Ownership of state
//
// The Hub's loop owns the list of sessions, the index of subscriptions, and the matching for live
// sessions. The own loop of a session owns it while it catches up. Requests to a session wait in
// its mailbox for its current owner. The mutex of a session's queue is held only to append, and
// nothing is called under it. No filter is evaluated and nothing is encoded under a lock. After the
// Hub has handed a session over to its own loop it touches nothing of it.
package delivery
