// Package delivery hands events to subscribers: sessions, batches, credit.
//
// A [Session] is a subscriber's connection to this node. Lanes offer it events of one partition at a time; it copies them into
// a [Batch], because what outlives a reply must not hold it, and queues the batch until the subscriber receives it. A batch
// holds everything between the positions From and To that the session asked for.
//
// # What full means
//
// Events and bytes that were offered and are not acknowledged count against the session's credit. Without credit the lane that
// wants to offer waits, which costs the other lanes nothing: the log keeps what it has not read.
//
// # Acknowledgement
//
// Acknowledging a batch acknowledges everything of its partition before it. Until then the lane's mark stays before it.
package delivery
