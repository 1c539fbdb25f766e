// Package share owns those partitions of a cluster that its plan gives to this node.
//
//	join ──► attached: renews its lease, says how it does, claims and gives up as the plan says
//	  ▲          │ not renewed by sent + TTL − TTL/3, the cluster not read for as long, or the lease is gone
//	  │          ▼
//	  └───── detached: all terms have ended, before anything else was done; comes back after two good answers within a second,
//	         always with a new lease and new epochs
//
// A [Share] does not decide who owns what: it reads the plan, and claims in transactions which succeed only where nobody else owns the
// partition. What the plan gives to others it has its server give up softly ([Config].Release), and then gives the key back. Hints only
// say when to look; what counts is the next view, and there is one every 2 s without any.
package agent
