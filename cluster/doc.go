// Package cluster holds the nouns of a cluster, and the ports through which nodes, the leader and operators reach the store that keeps
// its state: who is there ([Heartbeat], [Member]), who owns what ([Owner]), who should own what ([Plan]), and all of it at one revision
// ([View]).
//
// A member is in the store under a lease: when the lease ends, its heartbeat and everything that it owns are gone. A partition's epoch is
// the revision at which its ownership was written, so that a later claim has a higher epoch. The leader alone writes the plan, in
// transactions that hold only while it is elected. Operators write directives ([Directives]), and the leader plans with them. A watch
// is a hint; what counts is the next View.
//
// A node without a cluster claims all partitions through a [Registry], which keeps other processes out. Package member is what a node does
// to own partitions, package leader what the elected node does, and package plan decides, without doing anything, who should own what.
package cluster
