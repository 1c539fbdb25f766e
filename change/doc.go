// Package change defines changes, their positions in the log, and their partitions.
//
// An [Event] is one change as MongoDB sent it: raw BSON with the offsets of the few fields that
// routing needs. [Parse] finds them in one pass that decodes and copies nothing. A [Position] is a
// place in the log: a whole resume token and its cluster time. A [Partition] is one of N shares of
// the documents; [Partitioner] assigns them.
//
// # Order
//
// Positions have a total order, the order of the tokens' _data, which is the order of the stream.
// Cluster times have not: all changes of a transaction have the same one, and on a sharded cluster
// changes of different documents may have the same token head.
//
// # Aliasing
//
// An Event and everything read from it alias the reply in which they arrived. Copy values that must
// outlive the reply ([Position.Clone]).
//
// The package imports no other package of this module, starts nothing and does no I/O.
package change
