// Package dedup provides a reader's window of recent events. It complements positions.
//
// Positions suppress replays: a cursor never yields anything at or before its start. The window catches an event that appears twice at
// different positions, which positions cannot detect.
//
// An event is identified by its cluster time and the identity of its token, which includes the place in the transaction and the document
// key. Coarser keys would lose events: two updates of a document within a second, or several changes of a document in one transaction, are
// different events.
//
// The window is an LRU with bounded size and age. It has no pointers and does not allocate for each event (docs/adr explains why it is not
// golang-lru). A deliberate step back in the log clears it, so that a redelivery is contiguous.
package dedup
