// Package member is what a node does to own partitions: those that the cluster's plan assigns to
// it, or all of them where it is alone. There is one loop for both ([Member]); that a lone node
// keeps its terms while its store is away is an option of it ([Config].Alone).
//
//	join ──► attached: renews its lease, says how it does, claims and gives up as the plan says
//	  ▲          │ not renewed by sent + TTL − TTL/3, the cluster not read for as long, or the lease is gone
//	  │          ▼
//	  └───── detached: all terms have ended, before anything else was done; comes back after two good answers within a second,
//	         always with a new lease and new epochs
//
// A [Member] does not decide who owns what: it reads the plan, and claims in transactions which
// succeed only where nobody else owns the partition. What the plan gives to others it has its
// server give up softly ([Config].Offer), and then gives the key back. Hints only say when to look;
// what counts is the next view, and there is one every 2 s without any.
//
// # Alone
//
// A single node is a cluster of one: [Solo] makes its [cluster.Registry] a store with one member,
// whose plan assigns everything to it. Joining claims every partition; a view shows what the
// registry has answered, without asking it. A second process on the same checkpoints is refused.
//
//	claim ──► terms run ◄──renewed
//	  │            ├── one is taken away ─────► that term ends ──► given back ──► claimed again
//	  │            ├── asked to stop ─────────► serve ends in its own time ──► released
//	  │            ├── ran out unanswered ────► claimed anew ──► all terms end, and begin again with new epochs
//	  │ held       └── stood still, or taken ─► terms end (change.ErrTermLost) ──► serve ends
//	  ▼
//	wait TTL + 2 s, then STRM-NODE-RUNNING
//
// # Deadlines
//
// A lease or claim lives for a TTL from the moment at which a renewal was sent, never from the
// moment at which its answer came. A Member renews it every TTL/5 and ends its terms at sent + TTL
// − TTL/3: whoever claims the partitions after the TTL finds nobody who still believes to own them.
// The clock goes on while the machine is suspended ([cluster.SinceBoot]); timers do not, so the
// clock is looked at every TTL/20.
//
// # When nobody answers
//
// A node that is alone keeps its terms while its registry is away: a renewal that gets no answer
// ends no term, as long as the process looks at the clock often enough to show that it does not
// stand still. How far the node may get is bounded by checkpoint.Policy.MaxUnsaved. When the
// registry is back and the claim has run out meanwhile, everything is claimed anew under higher
// epochs, unless another process has it: then the node loses its terms and Run returns. So it does
// when the process stood still for longer than a claim is relied on, when the claim is gone but
// cannot have run out, and when the store is not the one of the first claim (adopted, restored,
// emptied).
//
// The trade: a second process that reaches the registry while the first does not may claim the
// partitions as soon as the first one's claim has run out, and both hand out changes until the
// first gets an answer or has come to MaxUnsaved. What the first hands out is true log, and who
// gets a change from both knows it by its position. No checkpoint can be harmed: the first one's
// epochs are refused. A single node that stopped with every outage of its store would be worse; a
// cluster of several has somebody else to go on, and there the lease rules.
//
// # Stopping
//
// A term ends when it is lost, alone or with all the others, and else not before its consumers have
// ended: the claim is kept alive while they hand over what is in flight and save their last marks,
// then it is released and a successor need not wait.
//
// # Terms
//
//	begun ──► runs ──► over (taken, refused, or all of them) ──► given back ──► claimed again, not before a second has passed
//
// A lease or claim is relied on until a deadline that is reckoned from when the request was sent
// (deadline.go); the terms under it begin, end and are given back one by one (terms.go).
package member
