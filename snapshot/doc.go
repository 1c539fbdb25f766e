// Package snapshot places documents, read from collections, among the changes.
//
// A page of documents shows everything that happened up to a time (After), and nothing that happened later than another (To). A stream that
// has the changes since After and has reached To receives the page there, without the documents that changes have touched meanwhile,
// because the subscriber has a newer state of these. A touched document whose changes did not carry all of it is read again.
//
//	changes   … After ├──────── touched ────────┤ To ── page ── changes …
//	                  └─ the page was read here ─┘
//
// Nothing older follows anything newer, and nothing is left out, on any version of MongoDB. If the server supports reads at a time (5.0),
// After equals To and nothing waits.
//
// A [Scan] reads a collection cyclically in the order of _id for any number of readers: a reader that joins later starts at the next page
// and is complete when the scan returns there. [Touched] tracks touched documents. [Progress] is the remainder of a subscription's snapshot
// and part of the checkpoint. Nothing here starts a goroutine or does I/O except a [Source].
package snapshot
