// Package member is the part of a node that owns partitions: those that the cluster's plan assigns
// to it, or all of them for a single node. One loop serves both ([Member]). An option
// ([Config].Alone) lets a single node keep its terms while its store is unreachable.
//
//	join ──► attached: renews its lease, sends heartbeats, claims and hands over as the plan says
//	  ▲          │ not renewed by sent + TTL − TTL/3, the cluster not read for as long, or the lease is gone
//	  │          ▼
//	  └───── detached: all terms have ended, before anything else; comes back after two good replies within a second,
//	         always with a new lease and new epochs
//
// A [Member] does not assign partitions. It reads the plan, and claims in transactions that succeed
// only if no other process owns the partition. It offers partitions that the plan assigns to others
// to their server ([Config].Offer), which stops gracefully, and then it returns the key. Hints only
// say when to look; the next view decides, and there is one at least every 2 s.
//
// # Alone
//
// A single node is a cluster of one: [Solo] makes its [cluster.Registry] a store with one member,
// whose plan assigns everything to it. Joining claims every partition; a view shows the registry's
// last answers, without asking it again. A second process on the same checkpoints is refused.
//
//	claim ──► terms run ◄──renewed
//	  │            ├── one is taken over ─────► that term ends ──► returned ──► claimed again
//	  │            ├── asked to stop ─────────► serve ends in its own time ──► released
//	  │            ├── expired unanswered ────► claimed again ─► all terms end, and begin again with new epochs
//	  │ held       └── frozen, or taken over ─► terms end (change.ErrTermLost) ──► serve ends
//	  ▼
//	wait TTL + 2 s, then STRM-NODE-RUNNING
//
// # Deadlines
//
// A lease or claim lasts for a TTL from the moment at which a renewal was sent, never from the
// moment of its reply. A Member renews it every TTL/5 and ends its terms at sent + TTL − TTL/3. So
// when another process claims the partitions after the TTL, no process still acts as their owner.
// The clock includes the time during which the machine is suspended ([cluster.SinceBoot]); timers
// do not, so the Member reads the clock every TTL/20.
//
// # When the store does not answer
//
// A single node keeps its terms while its registry is unreachable: a renewal without a reply ends
// no term, as long as the process reads the clock often enough to show that it is not frozen.
// checkpoint.Policy.MaxUnsaved bounds its unsaved progress. If the claim has expired when the
// registry answers again, the node claims everything again under higher epochs. If another process
// owns the partitions by then, the node loses its terms and Run returns. Run also returns if the
// process was frozen for longer than a claim is trusted, if the claim is gone but cannot have
// expired, and if the store is not the one of the first claim (adopted, restored, emptied).
//
// The trade-off: a second process that reaches the registry while the first does not may claim the
// partitions as soon as the first one's claim has expired. Then both deliver changes until the
// first gets a reply or reaches MaxUnsaved. The first one's changes are correct, and a client that
// gets a change from both recognizes it by its position. Checkpoints are safe, because the store
// refuses the first one's epochs. A single node that stopped with every outage of its store would
// be worse. In a cluster of several nodes another node continues, so there the lease decides.
//
// # Stopping
//
// A term ends when it is lost, alone or with all the others. Otherwise it ends only after its
// consumers: the Member keeps the claim alive while they deliver the changes in flight and save
// their last checkpoints. Then it releases the claim, so that a successor does not have to wait.
//
// # Terms
//
//	begun ──► runs ──► over (taken, refused, or all of them) ──► returned ──► claimed again, after at least a second
//
// A node relies on a lease or claim until a deadline that counts from the sending of the request
// (deadline.go); the terms under it begin, end and are returned one by one (terms.go).
//
// # Not obvious, and the tests that guard it
//
//   - A node without a lease serves exclusive subscribers and delivers nothing of its former
//     partitions (simulation.TestCluster, TestWhatIsBrokenIsNoticed)
//   - A claim is trusted from when its renewal was sent, on a clock that counts suspension
//     (TestSoloTranscripts, TestTermIsOverAsSoonAsItsClaimIs)
//   - A term that is over before the node serves it is given back, or its partition would have no
//     owner (wiring.TestTermThatIsOverIsGivenBack)
//   - Partitions of a claim whose answer was lost are given back, unless the claim is still under
//     way (TestClaimThatNobodyHeardOfIsNotLeftBehind)
//   - A restart of etcd renews the leases of the dead: only a lease that is renewed again and
//     again is that of a living process (member.TestJoinWaitsForTheDeadAlone)
package member
