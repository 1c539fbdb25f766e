// Package kafka publishes to Kafka.
//
// The producer is idempotent: what the client repeats is in the log once and in order. A change has its document's key, so that all changes of
// a document are in one partition of their topic.
//
// # Transactions
//
// A transactional target has a producer for each partition of the oplog, whose transactional.id is made of the cluster, the sink and the partition.
// The first message under a term initializes it, which ends the transaction of an earlier owner and fences it. The position of the last
// change is committed in the transaction, as the metadata of an offset of a consumer group for the partition. The next owner reads it there, and
// skips what is redelivered up to it. So consumers with read_committed see each change once. Where an operator moves
// the sink back, a transaction of its own sets the position back as well.
package kafka
