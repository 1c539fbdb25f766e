// Package delivery serves the oplog to sessions. Every subscriber is a [Session] of the [Hub],
// whatever its transport. The Hub matches each change once for all sessions, encodes it once in
// each form, and queues it for each session within its credit.
//
//	oplog ─► Hub: match once, encode once ─► live sessions ─► gRPC, SSE, stdout, sinks
//	oplog ─► a session that is catching up, at its own pace ─┘
//
// A session is a cursor over the whole oplog. On the live path the Hub's loop reads for it. A
// session without credit, or at an earlier position, catches up: it reads from its own position as
// soon as it has credit, and joins the live path between two replies when it has reached the Hub's
// position.
//
// # Batches
//
// A [Batch] is the next stretch of a session's stream: everything after the previous batch up to To
// that matches the session's subscriptions, in the order of the oplog, across all partitions of the
// session. Batches are numbered and acknowledged by number. A batch grows, within bounds, while the
// transport is busy; it never waits for more events while the transport is idle.
//
// A loss, a rewind, and a rename onto a watched collection are batches of their own in their place
// in the log. They are acknowledged like events and redelivered until they are.
//
// All entries of one position (a change, the documents that have left with it, in all forms) are
// one unit: they are in one batch. Losses and marks of snapshots name the namespaces that they
// concern. A document has left unless it is known that the subscriber does not have it; that it has
// nothing is never assumed.
//
// # Snapshots
//
// For each page of documents a session leaves the live path and pauses at the time at which the
// page is read; see hold.go. Package snapshot reads the pages; the loop is its port to the
// sessions, see stand.go.
//
// # Ownership of state
//
// The Hub and each session have two halves, so that the receiver of a method says who may call it:
//
//	Hub      anybody; what changes is guarded by its mutex    loop    only the goroutine of Run
//	Session  anybody; what changes is guarded by its mutex    stream  only the owner of the session
//
// The loop has the live sessions, the index of their subscriptions and the costs of the current
// reply. It owns the streams of live sessions; the own loop of a session owns its stream while it
// catches up. Nobody else has one: functions for the owner wait in the mailbox of the session, and
// those for the Hub's loop in Hub.do. The mutex of a session is held briefly. Under it Ack, queue,
// hold, release, hasCredit, resumesWith and affords call fair.Memory, which calls mayResume of
// sessions that may have room again, and that takes the mutex of retries: mutexes are taken in the
// order Hub, session, Memory, retries, so mayResume takes none of a session. No filter is evaluated
// and nothing is encoded under a lock. After the Hub has handed a stream over to its session it
// touches nothing of it.
//
// # Files
//
// A file names only what is in itself or below it. Sessions and hubs name each other, so their
// types are in two files, and what their methods do is above:
//
//	loop, catchup, attach               the loops of a Hub and of a session, and what moves sessions
//	live, costs, losses, hold, stand    what the Hub's loop decides
//	snapshot, join, leaves, room        snapshots, and documents that have left
//	outbox, held, ahead, window, state  what a session has queued, holds and has had
//	session, hub                        the types of both halves
//	batch, form, seen, progress         what is sent, and from where
//
// # Not obvious, and the tests that guard it
//
//   - A session joins the live path between two replies of the hub's loop, if the hub is no later
//     than the session; if the session is later, it skips the changes that it has
//     (delivery.TestSessionWithoutCreditComesBack, streamer.TestSessionsJoinInAQuietLog,
//     delivery.TestNothingIsLostWhateverHappens)
//   - The hub asks for the next reply only when the last one is queued for every live session, so
//     a session that leaves the live path knows its position exactly
//     (delivery.TestSessionWithoutCreditComesBack)
//   - A session's own loop ends when it has nothing to do, and begins again when somebody stirs it:
//     a session that waits is memory and no goroutine
//     (delivery.TestSessionsThatWaitHaveNoGoroutine)
//   - The first batch is empty: it says where the session begins, so that a client can come back
//     although nothing happened (delivery.TestFirstBatchSaysWhereTheSessionBegins)
//   - A batch that was not received cannot be acknowledged; in quiet times empty batches move
//     positions on, every 15 s, in an oplog of less than two minutes every 5 s, or they would
//     leave the oplog (delivery.TestAcknowledgementsOfWhatWasNotReceivedAreRefused,
//     delivery.TestBookmarksMoveQuietSubscribersOn,
//     delivery.TestPositionsOfQuietSubscribersFollowTheLog)
//   - The budget of all queues is checked before each event for each session, not after a reply:
//     50 sessions with one reply of 16 MiB are 800 MiB. A session leaves the live path within a
//     reply, but not between a loss and the event at its position
//     (gateway.TestSumOfAllQueuesIsBounded, delivery.TestNothingIsLostWhateverHappens)
//   - If it is unknown whether a subscription had a document that has stopped matching, the
//     subscription gets it as left (delivery.TestDocumentsLeave)
//   - All entries of one position, a change in several forms and what leaves with it, are one
//     unit: right after each other in one batch, and passed by a client's position together,
//     because a client that has one drops the others by position
//     (delivery.TestPositionsAreNeverSplit, client.TestPositionIsNeverWithinAChange,
//     TestEveryClientIsToldAllOfAPosition)
//   - One event may cost a session more than its identity may spend: it leaves the live path
//     before that event, in the middle of a reply, and considers it itself
//     (delivery.TestCostlyFilterLeavesBeforeTheEvent, TestNothingIsLostWhateverHappens)
//   - An identity's deliveries cost the copied bytes and each wake-up of a writer. A session that
//     waits for its turn gets more at once, so taking turns also costs less
//     (delivery.TestIdentityThatWantsEverythingPaysForItself,
//     delivery.TestLoneIdentityStaysOnTheLivePath)
//   - A transport that has copied the events of a batch gives it back: its memory is that of later
//     batches of any session, also of those that grow. So is a page's, once all of its readers have
//     done so. A collection of garbage frees what is not used (delivery.TestBatchesAreRecycled,
//     TestPagesAreRecycled, gateway.TestMemoryOfBatchesIsReusedOnceTheyAreCopied)
//   - A hub is restarted by taking its sessions off the live path where they are: they read on by
//     themselves and come back (delivery.TestRestartedHubLosesNothing,
//     TestWedgedHubIsFoundAndRestarted)
package delivery
