// Package cluster has the types of a cluster, and the interfaces through which nodes, the leader
// and operators use the store of its state: the members ([Heartbeat], [Member]), the owners of
// partitions ([Owner]), the assignment ([Plan]), and all of these at one revision ([View]).
//
// A member is in the store under a lease: when the lease ends, its heartbeat and everything that it
// owns are gone. A partition's epoch is the revision at which its ownership was written, so that a
// later claim has a higher epoch. The leader alone writes the plan, in transactions that hold only
// while it is elected. Operators write directives ([Directives]), and the leader plans with them. A
// watch is only a hint; the next View decides.
//
// # Coverage
//
// A heartbeat contains its node's coverage of MongoDB ([change.Coverage]) and its sinks. It has a
// hash in place of a long list of namespaces, one per database if that is short enough. A whole
// database covers such a list; of two different lists neither covers the other. The rule: only
// nodes that cover all others own partitions. A node that reads less would move the checkpoints of
// sinks past changes that it does not read, and one that lacks a sink would not move that sink's at
// all. If the nodes' settings do not cover each other, the majority's settings count, and then
// those of the node that joined first. So a rolling change moves every partition once, from nodes
// with the old settings to nodes with the new ones, and no sink stops. A node that reads less owns
// partitions only when no node that reads more is left. Its checkpoints record this, and the next
// node that reads everything reports the loss to their subscribers.
//
// A node without a cluster claims all partitions through a [Registry], which keeps other processes
// out. Package member is the part of a node that owns partitions, package leader the part that acts
// when the node is elected. Package plan decides who should own which partition; it has no side
// effects.
//
// # Not obvious, and the tests that guard it
//
//   - A process belongs to one cluster: a missing or different origin ends its ownership, and the
//     process creates no origin while a member is left
//     (TestOriginThatIsDeletedOrReplacedUnderRunningNodes)
package cluster
