// Package nats publishes to NATS JetStream.
//
// Messages are published without waiting for their acknowledgements. Each has the id of its change as Nats-Msg-Id, so that the stream drops what
// is published again within its duplicate window, which must be longer than a failover takes.
//
// A connection that breaks is not repaired: what is under way has failed, and the sink publishes it again over a new one, in order. The
// client's own reconnection could lose a message and deliver the next one, and its publisher repeats a message after later ones.
//
// # Fencing
//
// With {partition} in the subject, the first message of a partition with nothing under way says which sequence it expects as the last one of
// the partition's subjects. A process that was replaced and did not notice is refused then.
package nats
