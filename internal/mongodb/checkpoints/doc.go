// Package checkpoints keeps checkpoints in MongoDB, for a cluster whose store is MongoDB, and for a
// node without etcd also who owns the partitions.
//
//	<cluster>.checkpoints   one document for each exclusive subscriber, and one for each shared subscriber and partition
//	<cluster>.cluster       the origin with its backend, and the owner of all partitions, or who shares them through etcd
//	<cluster>.gaps          the gap log
//
// A document holds the checkpoint, its history, and the version of the write that made it, which is
// new with each write. Every write of a checkpoint is an update of one document with the version
// that was read before, so it replaces exactly what [checkpoint.Merge] was asked about, or nothing:
// then it is tried again. No transaction is needed. A write that arrives late finds another
// version, and is lost.
//
// The document of a shared subscriber also holds the epoch that may save it. A claim writes the
// epoch, in the same way. Adopting writes the new incarnation into the origin and then into all
// documents; a claim looks at the origin after its own write, so that one of the two sees the
// other.
//
// Reads and writes are with majority concern, those of one call in one causally consistent session:
// after an election, too, a call reads what it has written.
package checkpoints
