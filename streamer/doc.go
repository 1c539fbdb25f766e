// Package streamer serves the oplog to subscribers. Every subscriber is a [Session] of the [Hub], whatever its transport: what happens is matched
// once for all of them, written once in each form, and queued for each within its credit.
//
//	oplog ─► Hub: match once, encode once ─► sessions on the live path ─► gRPC, SSE, stdout, sinks
//	oplog ─► a session that is catching up, at its own pace ──────────────┘
//
// A session is a cursor over the whole oplog. On the live path the Hub's loop reads for it. A session that has no credit left, or starts
// further back, catches up: it has a position, reads on from there by itself as soon as it has credit, and joins the live path again
// between two replies, when it has read as far as the Hub.
//
// # Batches
//
// A [Batch] is the next stretch of a session's stream: everything after the batch before it and up to To that the session's subscriptions
// match, in the order of the oplog, of all partitions that the session has. Batches are numbered, and acknowledged by number. A batch
// grows while the transport is busy, up to its bounds; it never waits while the transport is not.
//
// A loss, a rewind and a rename onto a watched collection are batches of their own, in their place: they are acknowledged like events and
// come again until they are.
//
// # Who owns what
//
// The Hub's loop owns the sessions' list, the index of subscriptions, and what the sessions on the live path match. A session that catches up
// is owned by its own loop. What others ask of a session waits in its mailbox for whichever loop owns it. A session's queue has a mutex that
// is held for no longer than it takes to append to it, and under which nothing else is called. No filter is evaluated and nothing is encoded
// under a lock.
package streamer
