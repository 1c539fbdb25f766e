// Package fanout hands the node's log to subscribers: what happens is matched once for all of them, written once for all that want it
// in the same form, and queued for each within its credit.
//
//	tail ─► Hub ─► sessions on the live path ─► transports
//	tail, catch-up ─► a session off the live path, at its own pace
//
// A [Session] is a cursor over the whole log. On the live path the [Hub] reads for it. One that has no credit left, or begins further back,
// is off the live path: it stands at a position, reads on from there by itself as soon as it has credit, and joins the live path again
// between two replies, when it has read as far as the hub. What the log no longer holds by then it is told, bounded, in each
// partition.
//
// # Batches
//
// A [Batch] holds everything of one partition behind From and up to To that the session's subscriptions match. The batches of a partition
// follow each other: each begins where the one before ended. An event of no document is delivered in every partition. Batches grow while
// the transport is busy, up to their bounds; they never wait while it is not.
//
// # Stopping
//
// A hub that is about to stop serves on: [Hub.Drain] opens no more sessions and tells those that can go elsewhere, and [Hub.Settle] closes the rest
// when what was due has been acknowledged and the overlap is over. No session waits for another one.
//
// # Marks
//
// Sessions on the live path hold the marks of partitions at what they have acknowledged ([Hub.Low]). A session off the live path holds
// none: its own position protects it, which its client and its row keep.
package fanout
