// Package bulletin keeps in etcd what the nodes of a cluster have posted: the history of notices.
//
// A notice is a key of its own, <prefix>/<cluster>/notice/<process>/<number>, with the notice as JSON. Process and number make writing it
// again harmless where nobody knows whether it was written; the revision at which the key came is its place in the history, so that no
// node's clock matters. A batch is one transaction. Whoever has written deletes the oldest beyond the bound.
//
// Keys live under leases, one for a twenty-fourth of their time: a notice lives at least as long as configured, and a node has few leases.
// Keys of another form below the prefix are a stranger's: they are neither read nor deleted. What cannot be read under a key of ours is
// left out, and goes when it is among the oldest.
package bulletin
