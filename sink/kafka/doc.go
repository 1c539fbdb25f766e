// Package kafka publishes to Kafka.
//
// The producer is idempotent: records that the client repeats are in the log once and in order. The
// key of a record is its document's key, so that all changes of a document are in one partition of
// their topic. A record fails after the timeout even if a broker holds it: the producer continues
// under a new epoch, so that the topic refuses it later.
//
// # Transactions
//
// A transactional target has a producer for each partition of the oplog. Its transactional.id is
// made of the cluster, the sink, the number of partitions and the partition. The first message
// under a term initializes it, which ends the transaction of an earlier owner and fences it. The
// transaction also commits the position of the last message, as the metadata of an offset of a
// consumer group for the partition. The next owner reads it there, and skips redelivered messages
// up to it in the same incarnation of the checkpoint. So consumers with read_committed see each
// change once, and everything again after a rewind.
package kafka
