// Package trail is what a session knows of its partitions: where the batches of each are, which of them are on their way, and how far its subscriber is.
//
// A [Trail] begins where the subscriber stands, knows what that one has seen, and moves on with each batch: the next begins where the last one
// ended. A batch grows while nobody has taken it. What has been handed out stays until it is acknowledged.
//
// A trail that is away belongs to a partition that the session does not deliver. It only remembers where the subscriber stands, by its own
// account. A [Set] is all partitions of a session, with what nobody has taken yet; it belongs to its session, whose mutex guards it.
package trail
