// Package cluster decides which node owns which partition.
//
// A single node is a cluster of one: [Solo] claims every partition through the same [Registry] that a cluster uses, keeps
// the claim alive, and ends its terms before the claim can have run out. A second process on the same marks is refused.
//
//	claim ──► terms run ◄──renewed
//	  │            ├── one is taken away ─────► that term ends ──► given back ──► claimed again
//	  │            ├── asked to stop ─────────► serve ends in its own time ──► released
//	  │ held       └── not renewed, or lost ──► terms end (change.ErrTermLost) ──► serve ends
//	  ▼
//	wait TTL + 2 s, then STRM-NODE-RUNNING
//
// # Deadlines
//
// A claim lives for a TTL from the moment at which a renewal was sent, never from the moment at which its answer came. Solo
// renews it every TTL/5 and ends its terms at sent + TTL − TTL/3: whoever claims the partitions after the TTL finds nobody
// who still believes to own them. The clock goes on while the machine is suspended ([SinceBoot]); timers do not, so the
// clock is looked at every TTL/20.
//
// # Stopping
//
// A term ends when it is lost, alone or with all the others, and else not before its consumers have ended: the claim is kept alive while they hand over
// what is in flight and save their last marks, then it is released and a successor need not wait.
package cluster
