// Package change holds the nouns of the log: what one change is, where it stands, and which partition it belongs to.
//
// An [Event] is one change as MongoDB sent it: raw BSON plus the places of the few fields that routing needs, found in one
// walk ([Parse]) that decodes nothing and copies nothing. A [Position] is where an event stands in the log: its whole resume
// token and its cluster time. A [Partition] is one of N shares of the documents; [Partitioner] says which.
//
// # Order
//
// Positions have a total order, the order of the tokens' _data, which is the order of the stream. Cluster times alone have
// not: all changes of one transaction share one, and on a sharded cluster changes of different documents may share even the
// whole head of the token.
//
// # Aliasing
//
// An Event and everything read from it alias the reply they came in. Who keeps a piece beyond the reply copies it
// ([Position.Clone]).
//
// The package imports nothing of ours, starts nothing and does no I/O.
package change
