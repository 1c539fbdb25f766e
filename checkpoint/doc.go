// Package checkpoint stores the state that a restart needs: the position of each subscriber, and
// the origin of the cluster.
//
// A [Checkpoint] is the position up to which a subscriber has acknowledged everything; later
// changes are redelivered after a crash. An exclusive subscriber (a gateway, a named SSE client)
// has one checkpoint for all partitions, saved by the node with its session. A shared subscriber (a
// sink) has one for each partition, saved by the owner of the partition.
//
// # Fencing
//
// A checkpoint carries the claim of an exclusive subscriber's process, or the epoch of a shared
// subscriber's term. A store accepts it only while that claim or epoch is current; otherwise it
// returns [ErrFenced]. A checkpoint never moves back, so that a late write undoes nothing. The
// exception is an operator's rewind ([Rewinder]), one transaction that moves it back and raises its
// generation. A Save with a lower generation returns [ErrRewound], and the saver must move to the
// new position.
//
// [Merge] defines what saving means; all stores use it.
//
// # Related data
//
// The [Origin] is written once, at the first start, and holds the settings that must not change.
// The history keeps the last significant checkpoints, and one of the others per minute. The gap log
// ([Gap]) records stretches that could not be read from the oplog: no checkpoint passes a gap that
// is not recorded.
//
// # Saving
//
// The [Writer] saves in the background. A subscriber is due after an interval (5 s) or a number of
// events (1000). When one is due, those that are half due are saved with it. Rounds are at least
// 100 ms apart (Policy.MinInterval), whatever the load. Idle subscribers are saved rarely, but
// always well within the oplog window.
//
//	session ──Progress──► Writer ──[]Checkpoint──► Store (etcd, MongoDB, memory)
//
// # Encoding
//
// Stores keep checkpoints, origins and the gap log as JSON that an operator can read with etcdctl
// or mongosh. A reader refuses a newer version than its own and tolerates fields that it does not
// know; a code change that alters the meaning of a field must raise the version. A refused entry is
// a fault that names where it is stored: CheckpointNewer, CheckpointPartitions, or
// CheckpointCorrupt. Errors never show a token, which contains a document's key. A checkpoint's
// trail says how many entries its history has had, and when the last one was made.
//
// # Not obvious, and the tests that guard it
//
//   - No checkpoint passes a loss that is not kept: everybody's is in the gap log before, a
//     subscriber's own is in the write that passes it; nor a loss that ends a session with halt
//     (streamer.TestStoreThatIsAway, streamer.TestLossesOfOneSubscriberAreItsOwn,
//     delivery.TestHaltEndsTheSessionsThatWouldLose)
//   - An exclusive subscriber's checkpoint has one position, and more only for partitions that are
//     elsewhere; nodes that save parts of it lose nothing of each other's
//     (checkpoint.TestPartitionsAtThePositionCostACheckpointNothing,
//     client.TestCheckpointOfAnotherNodeProtectsASubscriber)
//   - A late write undoes nothing: etcd compares revisions, MongoDB epochs, order and the version
//     seen before (TestStoreIsAStore, TestCheckpointsInMongoDBAreAStore ("a late write undoes
//     nothing"))
//   - The origin names backend, etcd and prefix, in a key of its own: another backend would start
//     over silently, a second etcd would keep deposing the first (TestAnotherBackendIsRefused,
//     TestAnotherEtcdIsRefused, TestCompletingAnOriginDisturbsNobody)
//   - A position is valid only for the coverage of its stream: checkpoints contain it, and a node
//     that reads more again reports the span between as a loss
//     (TestChangesThatANodeDidNotReadAreALoss, checkpoint.TestCheckpointsNameWhatTheirStreamsRead)
package checkpoint
