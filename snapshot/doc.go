// Package snapshot has what reading documents among the changes needs: pages of collections, scans
// for several readers, and what is left of a snapshot.
//
// A page is read at a time at which its readers stand still: they have had everything that happened
// up to there, and nothing that happened later. It enters their streams there, so that nothing
// older follows anything newer and nothing is left out.
//
//	changes   … T ── pages, read at T ── changes …
//
// A server that cannot read at a time shows each document as it was at some time between T (After)
// and the end of the reading (To). [Touched] has the documents that changes have touched in
// between: they are read again, at a later T. What changes then, too, is brought to the T after that
// by a [Replay] of its changes.
//
// The rules:
//
//   - A document is left out only for a reader that is sent a newer state of it: each stands at the
//     time of the page, and what was touched while an inexact page was read comes at the time of a
//     later one, as it is then.
//   - Progress is part of the position: it moves with acknowledgements, and what somebody has asked
//     for is left from the moment that it is accepted. That it could not be loaded is not that
//     nothing is left.
//   - Waiting is bounded, and charged to its cause: the rate is waited for before a reader stands
//     still, a document that changes all the time is read twice, and identities take turns.
//
// A [Scan] reads a collection cyclically in the order of _id for any number of readers: a reader
// that joins later starts at the next page and is complete when the scan returns there. [Progress]
// is the remainder of a subscription's snapshot and part of the checkpoint. Nothing here starts a
// goroutine or does I/O except a [Source].
package snapshot
