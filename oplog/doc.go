// Package oplog reads MongoDB's oplog through change streams and serves it to cursors.
//
// A reader is one change stream and a ring of its recent replies. A node has one permanent reader,
// the tail, and temporary ones, the catch-ups, for cursors at positions before the tail's ring. A
// [Cursor] is a place in a reader. Any number of cursors costs MongoDB one stream.
//
//	MongoDB ─► fetch ─►(prefetch)─► split ─► ring: ▢ ▢ ▢ ▢ ▢        one reader
//	                                                ▲   ▲ ▲
//	                                              cursors
//
// # Continuity
//
// A reader proves once, for all cursors, that it misses nothing. It drops events that a reopened
// stream repeats, by position and by a window of recent events. If a stream was reopened without a
// proof of continuity and cluster time jumps, it reads the stretch again before it accepts it. A
// span that the oplog has lost becomes a [Loss], an entry in the order of the events. A cursor
// therefore yields events, losses and progress in order, and never an error about its position. The
// exception is a position later than the deployment's own time, which belongs to another log
// ([ErrAhead]).
//
// # Bounds
//
// The ring counts the bytes of its replies. When it is full, it overwrites the oldest reply;
// cursors that still need it continue in a catch-up and return to the tail later. The tail reads
// ahead of its live cursor by at most the prefetch and overwrites nothing that this cursor needs. A
// catch-up waits briefly for cursors whose entries it would overwrite, as long as they make
// progress.
//
// # Joining
//
// A cursor moves from a catch-up to the tail in one critical section: when the tail's ring holds
// everything after its position, the cursor is placed there and skips entries that it has read.
// Nothing is missed or repeated. The number of catch-ups is bounded; cursors near each other share
// one, opened at the earliest position. A cursor that is read for some namespaces ([Scope]) may
// share a catch-up that leaves out others, where the source can do that ([Retainer]). The tail
// pauses for a catch-up that makes no progress towards it.
//
// Catch-ups at positions that only a retained log has cost MongoDB nothing. They have a budget of
// their own, as large, and wait at the end of that log until MongoDB's streams are not all in use.
// Others whose positions leave the oplog read it, too; a budget of both together bounds them.
//
// Only [Cursor.Next] blocks, until there is something or the context ends.
//
// # Not obvious, and the tests that guard it
//
//   - The oplog's first entry does not say from where it can be read: older servers refuse that
//     entry's time, and it may be truncated before a stream is opened. The place is found by
//     opening (oplog.TestSearchFindsTheEarliestPlace,
//     oplog.TestReadingGoesOnAtTheEarliestPlaceThatTheServerAccepts,
//     TestNodeGoesOnWithWhatTheLogStillHas)
//   - A loss is an entry of the log, clipped to the place of each cursor; later cursors do not
//     meet it (oplog.TestLostHistoryIsAnEntryInItsPlace,
//     oplog.TestPoisonAndRenamesAreLossesInTheirPlace, delivery.TestLossesComeInTheirPlace)
//   - An entry of a ring has the document that was looked up when it was read. A cursor may ask for
//     entries that are read after a moment: then neither the tail nor a catch-up that began before
//     it serves the cursor, and one gives way where there is no room for another
//     (oplog.TestCursorsReadAnew, oplog.TestCursorsThatReadAnewWaitForNoOthers). The tail's ring
//     serves entries that the oplog no longer has (oplog.TestMemoryServesWhatCannotBeReadAnew)
//   - A server that refuses every position, also the newest, says nothing about the contents of
//     the log (oplog.TestServerThatRefuses,
//     oplog.TestServerThatAcceptsPositionsAgainHasLostNothing)
//   - A cursor joins the tail in one critical section: no gap, no duplicate
//     (oplog.TestEveryCursorSeesEverythingOnce)
//   - A catch-up that leaves out namespaces serves only cursors that do not ask for them: its scope
//     is decided before its stream is opened, and never becomes narrower
//     (oplog.TestCursorsMissNothingOfTheirNamespaces). Those of some namespaces take at most half
//     of the budget, unless they read the same ones
//     (oplog.TestReadersOfOneCollectionReadNothingElse).
//     Where there is no room for another one, cursors of different namespaces get one of everything
//     (oplog.TestCursorsOfDifferentNamespacesUnite). Catch-ups are ended for others one at a time
//     (oplog.TestOneStreamIsEndedAtATime)
//   - A catch-up of the retained log continues in MongoDB only within the budget of streams
//     (oplog.TestRetainedLogIsLeftWithinTheBudget), and serves no cursor that reads anew what
//     MongoDB has (oplog.TestWhatMongoDBHasIsNotReadAnewFromTheRetainedLog). A cursor that cannot
//     wait has one of MongoDB's streams before those that have reached the end of the retained log
//     (oplog.TestWhoeverCannotWaitGoesBeforeThoseThatJoin). One of these that is about to leave the
//     oplog, or has left it, cannot wait either, and goes before those that read anew
//     (oplog.TestWhoeverJoinsLateIsNotLeftToWait,
//     oplog.TestWhoeverJoinsLateGoesBeforeThoseThatReadAnew). The number of readers is bounded
//     whatever is known of that log (oplog.TestReadersOfTheRetainedLogAreBounded)
//   - The tail overwrites nothing that the hub needs; a session's own cursor never holds it up. A
//     catch-up waits for cursors that make progress (oplog.TestTailKeepsPaceWithTheLiveCursor,
//     oplog.TestCursorsOfACatchupThatMakeProgressAreNotLeftBehind)
package oplog
