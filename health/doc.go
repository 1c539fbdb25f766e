// Package health judges: it turns what a node knows into what is wrong.
//
//	facts ── Judge ──► problems ──► /health, /readyz, gRPC health, status, page, notices, metrics
//
// [Facts] are collected by whoever wires the node. [Judge] is a pure function and the only place
// that concludes anything; what shows the state of a node or of its cluster shows its [Verdict]. A
// [Problem] has one subject and one cause; problems that another one explains are part of that one:
// while MongoDB is away, late partitions and sinks are not told beside it.
//
//	healthy     nothing is wrong with the node
//	degraded    something that it serves is late or at risk
//	unhealthy   it cannot do its own job
//
// The target of a sink, a client that is slow, and a position that a stranger came with never make
// a node unhealthy.
//
// [Components] are the parts of a node that have work of their own, judged by their progress and
// not by their answers: a component that has something to do and does not get on is stalled. Their
// endpoints are /internal/health/SLUG.
package health
