// Package health says how a node does: registered checks, one state per partition, and the answers
// for people and probes.
//
// A [Registry] holds checks. Each has a stable name, a severity, a text that explains it to an
// operator, and a function that returns what is wrong now, or nil. /health shows them all with the
// partitions; /readyz is about whether the node can serve, /livez about whether its process should
// be left alone.
//
//	healthy     every check passes and every partition is healthy
//	degraded    a check of severity warning fails, or some partitions are not healthy
//	unhealthy   a critical check fails, or at least half of the partitions are not healthy
//
// [Components] are the parts of a node that have work of their own, judged by their progress and
// not by their answers: a component that has something to do and does not get on is stalled. Their
// endpoints are /internal/health/SLUG.
//
// The package knows nothing of what it checks: whoever wires the node registers the checks.
package health
