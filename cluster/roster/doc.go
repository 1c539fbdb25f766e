// Package roster holds the nouns of a cluster: who is there ([Heartbeat]), who owns what ([Owner]), who should own what ([Plan]), and
// all of it at one moment ([View]); and the ports through which members and the leader reach the store that keeps them.
//
// A member stands in the roster under a lease: when that ends, its heartbeat and everything that it owns are gone. A partition's epoch is
// the revision at which its ownership was written, so that whoever claims later has the higher one. The plan is written by the leader
// alone, in transactions that hold only while it is elected. Operators write what they wish ([Wishes]), and the leader plans with it. A watch
// is a hint; what counts is the next View.
package roster
