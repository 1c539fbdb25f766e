// Package snapshot reads documents among the changes: pages of collections, scans for several
// readers, and the progress of a snapshot.
//
// A page is read at a time at which its readers pause: they have had all changes up to that time,
// and no later ones. The page enters their streams there, so that no older state follows a newer
// one and nothing is left out.
//
//	changes   … T ── pages, read at T ── changes …
//
// A server that cannot read at a time shows each document as it was at some time between T (After)
// and the end of the reading (To). [Touched] has the documents that changes have touched in
// between: they are read again, at a later T. A document that has changed again by then is brought
// to the T after that by a [Replay] of its changes. Changes that do not contain their effect, or
// are too large to be kept, cannot be replayed: then it comes as it was read after a few tries.
// Later changes follow, and set the same fields again.
//
// The rules:
//
//   - A document is left out only for a reader that gets a newer state of it: each reader waits at
//     the time of the page, and a document that changed while an inexact page was read comes at the
//     time of a later page, in its state at that time.
//   - Progress is part of the position: it moves with acknowledgements, and a requested snapshot is
//     pending from the moment that it is accepted. Progress that could not be loaded does not mean
//     that no snapshot is pending.
//   - Waiting is bounded, and charged to its cause: a scan waits for the rate before a reader
//     pauses, a document that keeps changing is read twice, or a few times where its changes cannot
//     be replayed, and identities take turns.
//
// A [Scan] reads a collection cyclically in the order of _id for any number of readers: a reader
// that joins later starts at the next page and is complete when the scan returns there. One that
// has left joins again where the next page begins at its place. [Progress] is the remainder of a
// subscription's snapshot and part of the checkpoint.
//
// # Calls
//
// A [Scanner] has the scans of all collections. It belongs to the loop that considers the log,
// which reports events ([Scanner.Note]), missing ones ([Scanner.Spoil]), its place
// ([Scanner.Place]), and readers that come, may be ready, or have gone ([Scanner.Offer],
// [Scanner.Wake], [Scanner.Forget]). It reaches the sessions through its port: [Sessions] says
// which readers are ready, and has them wait at a time; that [Stand] writes their pages and hands
// them over.
//
//	loop  ── Note, Spoil, Place, Offer, Wake, Forget ─►  Scanner  ── Ready, Wait, Stand ─►  Sessions
//	                                                        │     ── Stays, Writer, Give ─►  Stand
//	                     a goroutine for each scan: Turns, Source
//
// The Scanner starts a goroutine for each scan, and one for the pages that it reads at one time.
// They do I/O, by a [Source], write pages and wait for [Turns]; they change the Scanner's state in
// the loop.
//
// # Not obvious, and the tests that guard it
//
//   - A document of a snapshot enters a session's stream at the time at which it was read, where
//     the session waits for it (delivery.TestSnapshotsMeetTheirChanges,
//     snapshot.TestEveryReaderGetsEverything)
//   - A sink that starts with a snapshot saves that all documents are left before anything is
//     served, or the owner after a crash would read none
//     (streamer.TestSharedSubscriberBeginsWithAllDocumentsLeft, TestSinkBeginsWithTheDocuments)
//   - A page is read at a time whose events were all sent, and the list of collections has a place
//     among the changes, too (delivery.TestSnapshotsMeetTheirChanges)
package snapshot
