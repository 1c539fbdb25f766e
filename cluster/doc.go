// Package cluster holds the nouns of a cluster, and the ports through which nodes, the leader and
// operators reach the store that keeps its state: who is there ([Heartbeat], [Member]), who owns
// what ([Owner]), who should own what ([Plan]), and all of it at one revision ([View]).
//
// A member is in the store under a lease: when the lease ends, its heartbeat and everything that it
// owns are gone. A partition's epoch is the revision at which its ownership was written, so that a
// later claim has a higher epoch. The leader alone writes the plan, in transactions that hold only
// while it is elected. Operators write directives ([Directives]), and the leader plans with them. A
// watch is a hint; what counts is the next View.
//
// # Coverage
//
// A heartbeat says what its node reads of MongoDB ([change.Coverage]) and which sinks it serves.
// A long list of namespaces is a hash there, by database where that is short enough; a whole
// database covers such a list, and of two lists that differ neither covers the other.
// The rule: only nodes that cover all others own partitions. A node that reads less would move the
// checkpoints of sinks past changes that it does not read, and one that lacks a sink would not move
// that sink's at all. If the nodes' settings do not cover each other, those of most nodes count,
// and then those of the node that joined first. So a rolling change moves every partition once from
// nodes with the settings of before to those with the new ones, and no sink stands still. A node
// that reads less owns partitions only when no wider one is left. Its checkpoints say so, and
// whoever reads everything again tells their subscribers of the loss.
//
// A node without a cluster claims all partitions through a [Registry], which keeps other processes
// out. Package member is what a node does to own partitions, package leader what the elected node
// does, and package plan decides, without doing anything, who should own what.
package cluster
