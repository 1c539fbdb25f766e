// Package snapshot has what is needed to place documents, as collections have them now, among the changes.
//
// A page of documents is read so that it shows everything that happened up to a time (After), and nothing that happened after another (To).
// Whoever has the changes since After, and is at To or later, gets the page there, without the documents that changes have touched
// meanwhile: of those the subscriber has a newer state already. A document whose changes did not carry the whole of it is read again.
//
//	changes   … After ├──────── touched ────────┤ To ── page ── changes …
//	                  └─ the page was read here ─┘
//
// Nothing older follows anything newer, and nothing is left out, on any version of MongoDB; where the server reads at a time (5.0), After and
// To are the same and nothing waits.
//
// A [Scan] goes round a collection in the order of _id for any number of readers: who comes while it is under way joins at the next page,
// and has everything when the scan has come round to there. [Touched] are the documents that changes have touched. [Progress] is what is left
// of a subscription's snapshot; it is part of its subscriber's checkpoint. Nothing here starts a goroutine or does I/O but a [Source].
package snapshot
