// Package leader is the leader of a cluster: [Leader] stands for election, reads the cluster's state on every hint and at least with every
// heartbeat, asks package plan for a decision, and applies it: it publishes plans, evicts owners, and posts notices.
//
//	trusted ──► campaign ──► elected ──► View ─► Step ─► publish ─► evict ─┐
//	   ▲                                  ▲───────── hint, deadline ◄──────┘
//	   └── resign ◄── not trusted, deposed, another one elected, asked to stop
//
// What fails is decided anew from the next view; nothing is retried as it was. Each leadership begins with a new Planner, so that what an
// earlier one believed harms nobody. Every write is fenced by the store: a leader that does not know yet that it is deposed changes nothing.
//
// However often it is hinted, the leader looks for a tenth of the time at most: after each look it waits for nine times as long as that
// took, at least 50 ms and at most a second.
package leader
