// Package simulation is a whole cluster in one process and in virtual time, with an adversary: only
// tests are in it.
//
// A world has three to five nodes, each built from the parts of a real node (wiring.Membership with
// its member, donor and leader, streamer's node and hub, the log), a log, a roster and a store of
// checkpoints in memory, and exclusive subscribers that keep their position: some have one session
// with everything, others follow the owners and attach partitions. One shared subscriber, the sink,
// is served by all nodes together. Between a process and the stores lies a network that delays,
// loses requests, or loses only answers, and that still delivers requests that were sent before it
// was cut. Everything lives in a bubble of testing/synctest, so that minutes take milliseconds.
//
// # The adversary
//
// A seed chooses the faults: processes are killed, stopped and started again under the same name;
// they freeze, and their last requests arrive after their lease has expired, or their clock jumps
// past it; they are cut off, both ways or only from answers; leaders die; a node keeps partitions
// that the plan assigns to others; clients stall, break, forget, and attach again; the store of
// checkpoints fails; operators move checkpoints back; the log answers nobody; and several of these
// at the same moment. Then all is healed.
//
// # Invariants
//
//   - At any moment at most one node serves a partition under a term that is trusted. A term whose
//     key the leader has taken away may last for a bounded time.
//   - No checkpoint of the sink is accepted but from the partition's owner, under its epoch or a
//     claim of it. No checkpoint of any subscriber passes its acknowledgements of that generation,
//     none is later than the log, and none goes back within a generation. A partition that is
//     handed over leaves its checkpoint at its last acknowledgement, if the store was reachable.
//   - The sink and every client get every change, in the order of the log, without a hole and
//     without a loss; a redelivery is contiguous, for the sink across all nodes. A batch of
//     a client never claims a later place than its last event.
//   - Nothing is handed to the sink by a node that does not own it at that moment. Clients are
//     served by nodes without a lease, too.
//   - Once healed, every partition is owned and moves within a bounded time, everybody's checkpoint
//     follows, and plans come to rest.
//
// # Seeds
//
// A seed decides the faults and all delays. It does not decide which of several goroutines runs
// first when they wake at the same moment. A seed that fails is therefore kept in
// testdata/seeds.txt, run before all others, and may have to be run more than once:
//
//	go test ./internal/simulation -run TestCluster -seed 4711 -count 100
package simulation
