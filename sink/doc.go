// Package sink publishes the changes of a shared subscriber to another system: Kafka, NATS
// JetStream, an HTTP endpoint, a file, standard output.
//
//	streamer.Shared ─► Sink: encode, publish in order ─► Target
//	  acknowledged: Shared.Ack ─► checkpoint
//	  refused: attempts, dead letter or halt
//	  unreachable: wait, then again from the first failure
//
// The owner of a partition publishes its changes in the order of the oplog. Messages are published
// without waiting for each other. A batch is acknowledged when the target has acknowledged all its
// messages and those of earlier batches, so that no checkpoint passes an unacknowledged message.
//
// # Failures
//
// A message that fails stops the sink until everything under way has an outcome. Then the sink
// repeats each partition from its first message that failed, so that a redelivery is a contiguous
// replay. It tries the first of them alone, guarded by the target's circuit breaker. It retries an
// unreachable target without limit: the session waits at its place in the oplog and loses nothing.
// A message that the target itself refuses ([RefusedError]) gets a bounded number of attempts; then
// the sink writes it as a dead letter, or halts. Where the target refuses a destination and no
// message, what goes there waits and is tried again without limit, one destination at a time, so
// that others get their changes (TestManyRefusedDestinationsHoldUpNobody in test/node). Where a
// target refuses messages as a whole, the refusal of one that was published with others does not
// count (TestOnlyWhatIsRefusedAloneIsADeadLetter).
//
// Before the sink repeats a message it checks again whether the node still owns the partition, and
// drops the message if not.
//
// # Rules
//
// A message leaves the process only while its term is valid, also when a client library repeats it:
// connections write through a [Gate], and requests and lines check [Owned] last.
//
// A target that orders messages recognizes a repetition by its [Position], as a prefix, and never
// message by message or by age.
//
// The name of a sink's state in a target contains everything that gives it meaning: cluster, sink,
// number of partitions, and the incarnation of the checkpoint, which changes with every intended
// repetition.
//
// # Bounds
//
// The session's credit (gateway.credit_events, gateway.credit_bytes) bounds the changes that wait
// for the target, besides their encoding. The memory of encoded changes is used again once their
// batch is acknowledged, if nothing has failed since it was begun: a target may still have what it
// has not acknowledged.
//
// # Not obvious, and the tests that guard it
//
//   - A later message may be acknowledged although an earlier one failed: the partition is
//     repeated from that one, or a replay would have a hole (TestHTTPSinkOutlivesFailures)
//   - The messages in a target are known by position, as a prefix in one incarnation of the
//     checkpoint; a rewind, an import, a deletion or a repartition begin another one, in which
//     nothing is skipped (sink.TestRepetitionsAreSkippedByPosition,
//     kafka.TestAnotherIncarnationIsPublished, nats.TestAnotherIncarnationArrives)
//   - Client libraries of targets repeat their buffers; the terms are checked where bytes are
//     written (sink.TestGateShutsWithATerm, kafka.TestRecordsOfEndedTermsAreWithdrawn)
//   - A sink is judged by the progress of its oldest unacknowledged batch, not by its traffic, and
//     is restarted with a new target for unacknowledged messages
//     (sink.TestSinkIsJudgedByItsOldestBatch, TestWedgedSinkIsFoundAndRestarted,
//     TestSinkWithoutItsTargetIsNotStalled)
//   - Nothing may use a message after its acknowledgement: a gate keeps a copy, and a body ends
//     with its request (sink.TestGateNeedsNoMessageThatIsOver, http.TestBodyEndsWithItsRequest,
//     sink.TestMemoryOfAcknowledgedMessagesIsUsedAgain)
package sink
