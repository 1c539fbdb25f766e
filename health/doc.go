// Package health judges: it derives problems from the facts that a node knows.
//
//	facts ── Judge ──► problems ──► /health, /readyz, gRPC health, status, page, notices, metrics
//
// The code that wires the node collects [Facts]. [Judge] is a pure function and the only place that
// draws conclusions; every display of the state of a node or its cluster shows its [Verdict]. A
// [Problem] has one subject and one cause; problems that another one explains are part of that one:
// while MongoDB is unreachable, late partitions and sinks are not separate problems.
//
//	healthy     nothing is wrong with the node
//	degraded    something that it serves is late or at risk
//	unhealthy   it cannot do its own job
//
// The target of a sink, a client that is slow, and a position that a stranger came with never make
// a node unhealthy.
//
// [Components] are the parts of a node that have work of their own, judged by their progress and
// not by their answers: a component that has work and makes no progress is stalled. Their endpoints
// are /internal/health/SLUG.
//
// # Not obvious, and the tests that guard it
//
//   - A component is judged by the age of its progress, and only while it has work: an answer
//     proves nothing, and an unreachable MongoDB or etcd is not a component's stall
//     (TestComponentsAreJudgedByTheirProgress, TestNothingIsStalledWhileMongoDBIsAway)
//   - Only health.Judge derives problems: every surface shows its verdict, and one that another
//     explains is part of that one (health.TestEverySituationHasOneVerdict,
//     health.TestVerdictsAreSound)
//   - Problems of one subject are joined only after their causes are known: one that began long
//     before an outage is no part of it, however many others of the subject are
//     (health.TestEverySituationHasOneVerdict)
package health
