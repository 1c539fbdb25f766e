// Package notice provides typed messages to operators about the service, on four channels.
//
// A [Board] receives notices from all parts of a node, logs them, keeps the most recent ones, and lets any number of readers follow.
// Posting never blocks: a reader that is too slow misses the oldest notices and learns their number. A [Stream] serves a board as
// server-sent events. [Table] defines the kinds of notices and their fields.
//
// # History
//
// A [Recorder] shares notices between the nodes of a cluster. It writes the notices of its node's board into a [Store], in batches in the
// background, and adds those of other nodes to the board. So every board shows the notices of the whole cluster, including those from
// before its process started.
//
// While the store is unavailable, a bounded number of notices waits; beyond it the oldest are dropped and counted. The board itself never
// waits. A notice of another node is renumbered by this board and marked as relayed: readers of the board receive it, but it is not logged
// or sent to webhooks again.
package notice

//go:generate go test -run TestKindsAreDocumented -args -rewrite
