// Package streamer is a node: its subscribers, their checkpoints, and its share of the partitions.
//
//	Connect ─► Exclusive ─► delivery.Session   one name, one process, one row of positions
//	Share   ─► Shared    ─► delivery.Session   a sink: one row for each partition that the node owns
//	Serve, Release, Ended: the terms of partitions, from package cluster
//
// An [Exclusive] subscriber is a gateway or a browser that gives a name. Its session has all
// partitions, or those that are attached to it. Its checkpoint is fenced by its generation, which a
// rewind raises. It needs no owner: it is served while etcd is unreachable.
//
// A [Shared] subscriber is served by all nodes together. Each node delivers the partitions for
// which it has the term, from their checkpoints, which are fenced by the epochs of these terms.
//
// Acknowledgements become checkpoints: the sessions report their progress, and the writer of
// package checkpoint saves it. Losses go to the gap log before any checkpoint passes them.
//
// The reading, matching and queueing is in package delivery, which knows neither checkpoints nor
// terms' owners.
//
// # Not obvious, and the tests that guard it
//
//   - A partition leaves a node when shared subscribers have acknowledged the changes that they
//     received of it; later ones are not delivered, and the checkpoint does not pass them
//     (TestPartitionLeavesWhenItsChangesAreAcknowledged)
//   - An event whose term is over is removed right before its delivery, and so are events that
//     were queued under an earlier term, or wait for a sink's target: a thawed process continues
//     to run before its context ends (streamer.TestDeposedOwnerHandsNothingOver,
//     TestReaderGetsNothingOfTermsThatHaveEnded, TestNothingIsPostedAfterItsTermHasEnded,
//     streamer.TestWhatWasQueuedUnderAnEarlierTermIsTakenOut,
//     test/process.TestFrozenNodeThatWasReplacedHandsOutNothingMore)
//   - What depends on when it is read is read after the end of the former owner's term: documents
//     of unfinished snapshots, and documents that filters look up
//     (streamer.TestDocumentsFollowWhatMayHaveBeenHandedOver,
//     streamer.TestHiddenChangesComeWithNewDocuments)
//   - Changes sent before a rewind belong to the earlier generation: their acknowledgement does
//     not move the rewound checkpoint (streamer.TestRewindIsNotUndoneByWhatWasOnItsWay,
//     streamer.TestRewoundCheckpointStaysWhileOlderBatchesAreNotAcknowledged)
//   - A rewind between reading a checkpoint and claiming its name starts the connection over; one
//     at another node arrives by a notice (streamer.TestRewindWhileASubscriberConnects,
//     TestSubscribersOfEveryNodeAreToldOfARewind)
//   - Of two processes with one name the later one wins, by the start of the process and not by
//     the last request (streamer.TestNameBelongsToTheLaterProcess,
//     gateway.TestOlderProcessIsRefused)
package streamer
