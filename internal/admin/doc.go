// Package admin implements the operations on a cluster: list subscribers, rewind them, export and
// import their checkpoints, adopt a cluster after a restore, change the number of partitions, hand
// a partition over, and drain a node. The commands in cmd/streamer parse arguments, ask for
// confirmation, and print; this package executes and refuses operations.
//
// Every write goes through the store's fence. A rewind raises the generation of a checkpoint, so
// that the node that serves the subscriber moves to the new position. An import claims every
// partition as a node does, so that no node can be running. Adopting ends every epoch that was
// issued before.
//
// A [Handoff] and a [Drain] write a directive into the cluster's state. The leader plans with it,
// and the owners hand over the partitions that the plan assigns to others. Directives of two
// operators cannot conflict: the first pin of a partition wins, and a pin expires.
//
// Output never contains a resume token, because a token contains a document's key: positions are
// shown by their time and a hash. Exports contain tokens, because only with them do checkpoints
// resume exactly.
//
// # Not obvious, and the tests that guard it
//
//   - Partitions that are recounted begin at the origin's new start, so that one transaction
//     changes everything (test/process.TestPartitionsAreCountedAnewAndNothingIsMissing,
//     test/process.TestRepartitionThatWasKilledIsDoneByTheNext)
package admin
