// Package checkpoint keeps what a restart needs: where each subscriber is, and where the first start began.
//
// A [Checkpoint] is the position up to which a subscriber has acknowledged everything; what comes after it is delivered again after a crash.
// An exclusive subscriber (a gateway, a browser with a name) has one for all partitions, saved by the node that has its session. A shared
// subscriber (standard output, a sink) has one for each partition, saved by the partition's owner.
//
// # The fence
//
// A checkpoint of an exclusive subscriber carries the claim of its process, one of a shared subscriber the epoch of the term. A store takes it
// only while that claim or epoch stands; others get [ErrFenced]. A checkpoint never moves back, so that a write that arrives late
// undoes nothing, but for an operator's rewind ([Rewinder]), which is one transaction that moves it and raises its generation: whoever saves
// with a lower one gets [ErrRewound], and goes where the operator has moved it.
//
// [Merge] is what saving means. All stores use it.
//
// # Beside the checkpoints
//
// The [Origin] is written once, by the first start, and says what must not change. The history keeps the last checkpoints that mean something,
// and one a minute of the others. The gap log ([Gap]) keeps what could not be read from the oplog any more: no checkpoint passes a gap that is
// not in it.
//
// # Who saves when
//
// The [Writer] saves, off the path of the events: a subscriber is due after an interval (5 s) or a number of events (1000); when one is due,
// all that have moved are saved together. Rounds are at least two seconds apart, so that a node costs its store at most a few
// transactions in five seconds, whatever the load. What does not get any events is saved seldom, but always well within the reach of
// the oplog.
//
//	session ──Standing──► Writer ──[]Checkpoint──► Store (etcd, MongoDB, memory)
//
// # Encoding
//
// Stores keep checkpoints, origins and the gap log as JSON that an operator can read with etcdctl or mongosh. A reader refuses a newer
// version than its own and tolerates fields that it does not know; whoever changes the meaning of a field raises the version. What is refused
// is a fault that names where it is stored: CheckpointNewer, CheckpointPartitions, or CheckpointCorrupt. Errors never show a token, which
// contains a document's key. A checkpoint's trail says how many entries its history has had, and when the last one was made.
package checkpoint
