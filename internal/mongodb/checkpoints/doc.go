// Package checkpoints stores checkpoints in MongoDB. For a node without etcd it also stores the
// ownership of the partitions.
//
//	<cluster>.checkpoints   one document for each exclusive subscriber, and one for each shared subscriber and partition
//	<cluster>.cluster       the origin with its backend, and the owner of all partitions, or a mark that nodes share them through etcd
//	<cluster>.gaps          the gap log
//
// A document holds the checkpoint, its history, and a version that changes with every write. A
// write updates one document, and only if it still has the version that was read before. So it
// replaces exactly the checkpoint that [checkpoint.Merge] has compared, or nothing; then the store
// tries again. This needs no transaction. A write that arrives late finds another version and has
// no effect.
//
// The document of a shared subscriber also holds the epoch that may save it. A claim writes the
// epoch in the same way. An adoption writes the new incarnation into the origin and then into all
// documents. A claim reads the origin after its own write, so that one of the two sees the other.
//
// Reads and writes use majority concern, and each call uses one causally consistent session, so
// that a call reads its own writes, even after an election.
package checkpoints
