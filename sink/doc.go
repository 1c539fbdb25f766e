// Package sink publishes the changes of a shared subscriber to another system: Kafka, NATS
// JetStream, an HTTP endpoint, a file, standard output.
//
//	streamer.Shared ─► Sink: encode, publish in order ─► Target ─► acknowledged ─► Shared.Ack ─► checkpoint
//	                        └─ refused: attempts, dead letter or halt; away: wait, then again from the first that failed
//
// The owner of a partition publishes its changes in the order of the oplog. Messages are published
// without waiting for each other. A batch is acknowledged when the target has acknowledged all its
// messages and those of earlier batches, so that no checkpoint passes what the target has not
// acknowledged.
//
// # Failures
//
// A message that fails stops the sink until everything under way has an outcome. Then the sink
// repeats each partition from its first message that failed, so that a redelivery is a contiguous
// replay. The first of them is tried alone, behind the target's circuit breaker. A target that is
// away is tried for ever: the session waits in the oplog and loses nothing. A message that the
// target refuses by itself ([RefusedError]) gets a bounded number of attempts and is then written
// as a dead letter, or the sink halts.
//
// Before a message is repeated the sink asks again whether the node still owns its partition, and
// drops it if it does not.
//
// # Rules
//
// A message leaves the process only while its term is valid, whoever repeats it: connections write
// through a [Gate], requests and lines ask [Owned] last.
//
// In a target that orders messages a repetition is recognized by its [Position], as a prefix, and
// never message by message or by age.
//
// What a target keeps of a sink under a name contains everything that gives the name its meaning:
// cluster, sink, number of partitions, and the incarnation of the checkpoint, which changes with
// everything that repeats on purpose.
//
// # Bounds
//
// What waits for the target is what the session has credit for (gateway.credit_events,
// gateway.credit_bytes), besides its encoding.
package sink
