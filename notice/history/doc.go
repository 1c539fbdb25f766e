// Package history lets the nodes of a cluster share what they post: a [Recorder] writes the notices of a node's board into a [Store], in
// batches off everybody's path, and puts on the board what the others write there. So every node's board shows the cluster's notices,
// those from before its process too.
//
// Where the store is away, up to a bound of notices waits; then the oldest go and are counted. The board itself never waits. A notice of
// another node has this node's number on the board, and is marked as relayed: it is told to gateways and to those who follow the board,
// not logged or sent to webhooks again.
package history
