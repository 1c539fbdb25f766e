// Package simulation is a whole cluster in one process and in virtual time, with an adversary: only tests are in it.
//
// A world has three to five nodes, each made of what a real one is made of (share, leader, node, hub), a log, a roster and marks in memory,
// and gateways that go on where they stand at whichever node they reach. Between a process and the stores lies a network that delays,
// loses requests, or loses only answers, and that carries out what was sent before it was cut. Everything lives in a bubble of
// testing/synctest, so that minutes take milliseconds.
//
// # The adversary
//
// A seed says what befalls the world: processes are killed, stopped and started again under the same name; they stand still, with what they
// were about to send arriving after their lease has run out, or have their clock jump past it; they are cut off, both ways or only from
// answers; leaders die; gateways stall, break and forget; the store of marks fails; the log answers nobody; and several of these at the same
// moment. Then all is healed.
//
// # What must hold
//
//   - At any moment at most one term of a partition is trusted. A term whose key the leader has taken away may be so for a bounded time.
//   - No mark is accepted but under its owner's epoch, none passes what a subscriber of the owner has not acknowledged, and none is ahead of
//     the log. A partition that is given up leaves its mark at what was acknowledged, where the store could be reached.
//   - A subscriber of the nodes' own deliveries (a sink) and every gateway gets every change, in the order of the log, without a hole;
//     what comes again comes contiguously. Nobody's row says more than was acknowledged.
//   - Nothing is handed out under a term, or by a node, that is not trusted at that moment.
//   - Once healed, every partition is owned and moves within a bounded time, and plans come to rest.
//
// # Seeds
//
// A seed decides what the adversary does, and how long what takes; not which of several goroutines runs first that wake at the same
// moment. A seed that fails is therefore kept in testdata/seeds.txt, run before all others, and may have to be run more than once:
//
//	go test ./internal/simulation -run TestCluster -seed 4711 -count 100
package simulation
