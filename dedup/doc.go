// Package dedup is the second net under the positions: a lane's window of the events it has passed lately.
//
// Positions decide replays: a cursor never yields what stands at or before the place where it was put. The window catches what
// positions cannot see, an event that comes twice at different places, and it is why a redelivery after a crash is short.
//
// An event is known by its cluster time and the identity of its token, which holds the place in its transaction and the
// document's key. Coarser keys lose events: two updates of one document within a second, or several changes of one document
// in one transaction, are different events.
//
// The window is an LRU of bounded size whose entries live for a bounded time, kept without pointers and without an allocation for
// each event (docs/adr says why it is not golang-lru's). A deliberate step back in the log clears it, so
// that a redelivery is contiguous.
package dedup
