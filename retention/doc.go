// Package retention keeps the log beyond MongoDB's oplog, in segments of an object store.
//
// A segment is an immutable object with the changes of a stretch of cluster time, [From, To).
// Segments are numbered, and each names its predecessor: they form a chain. A [Writer] extends the
// chain from a cursor of the node's log. A [Source] reads positions from it that MongoDB rejects,
// and continues in MongoDB where the chain ends.
//
//	tail ─► cursor ─► Writer ─► seg/…41 ─► seg/…42 ─► seg/…43        floor/…41
//	                               │          │          │
//	                               └──────── Source ─────┴─► MongoDB ─► reader
//
// # Ownership
//
// An object is created only where there is none, so one writer wins each number. Nobody holds a
// lease: a number that somebody else has taken ends a writer's turn. Expiry raises the floor before
// it deletes the segments below it, and a writer reads the floor after each put: a number that was
// deleted and created again is below the floor, and nobody reads it.
//
// # Damage
//
// Header, blocks and footer have checksums. A damaged block is a loss of the block's stretch and
// namespaces, a damaged footer one of the segment, a damaged header one up to the next segment, and
// so is an object of another size. Unreadable bytes are never passed over silently.
//
// # Lanes
//
// A block has changes of one lane, and the footer says which namespaces they concern. A reader of
// some namespaces reads only the lanes that may have changes of theirs, and gets only their losses.
//
// # Sharing
//
// The streams of a [Source] share the blocks that they fetch, up to a bound, so that readers of the
// same stretch cost the store one. Readers that are further apart fetch them again.
//
// # Not obvious, and the tests that guard it
//
//   - A number of the retained log that was deleted may be created again by a writer that hung: a
//     floor rises before anything is deleted, and a writer reads it after each segment
//     (retention.TestModelOfWriters, retention.TestFloorFencesStalledWriters)
//   - A retained log is continued only where its last change is met again; a restored MongoDB has
//     another history (retention.TestRestoredHistoryStopsTheWriter)
//   - A rename is in the lane of its source, which names its target, too; the changes of a database
//     concern all of its collections (retention.TestNarrowReadersMissNothingOfTheirs)
//   - The reader of the log passes over a loss that ends where it has been: losses are
//     ordered by their ends, and those that end together become one
//     (retention.TestNarrowReadersMissNothingOfTheirs)
//   - An answer of the store says nothing: the object under the number decides who wrote it, and
//     whether it is there (retention.TestLostAnswersOfTheStore,
//     retention.TestStoreThatLiesCostsNothing)
//   - Readers come and go: their blocks stay for some seconds after the last one
//     (retention.TestReadersShareWhatTheyFetch)
//   - Some stores overwrite objects whatever the request says: the writer of a shared chain probes
//     its store before the first segment (retention.TestWriterRefusesStoresThatOverwrite)
package retention
