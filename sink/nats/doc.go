// Package nats publishes to NATS JetStream.
//
// Messages are published without waiting for their acknowledgements. The stream's duplicate window
// is not used: it judges each message by itself, and forgets an older one before a newer one, so
// that of a repetition it could take the older one after the newer one.
//
// A connection that breaks is not repaired: what is under way has failed, and the sink publishes it
// again over a new one, in order. The client's own reconnection could lose a message and deliver
// the next one, and its publisher repeats a message after later ones.
//
// # Fencing
//
// With {partition} in the subject, each message says which sequence it expects as the last one of
// the partition's subjects, and which position the stream has with it. A process that was replaced
// and did not notice is refused, each message of a burst; the next owner reads the position from
// the last message, and skips what is redelivered up to it.
package nats
