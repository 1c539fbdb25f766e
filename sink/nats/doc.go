// Package nats publishes to NATS JetStream.
//
// Messages are published without waiting for their acknowledgements. The target does not use the
// stream's duplicate window: the window judges each message by itself and forgets older ones first,
// so that in a repetition the stream could accept an older message after a newer one.
//
// A broken connection is not repaired: all messages under way fail, and the sink publishes them
// again over a new connection, in order. The client's own reconnection could lose a message and
// deliver the next one, and its publisher repeats a message after later ones.
//
// # Fencing
//
// With {partition} in the subject, each message contains the sequence that it expects as the last
// one of the partition's subjects, and the position of the stream including this message. The
// stream refuses every message of a replaced process that has not noticed its replacement. The next
// owner reads the position from the last message, and skips redelivered messages up to it.
package nats
