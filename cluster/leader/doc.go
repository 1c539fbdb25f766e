// Package govern is the leader of a cluster: [Leader] stands for election, looks at the roster on every hint and at least with every
// heartbeat, asks policy what is to be done, and does it under its leadership: publishes plans, takes keys away, posts notices.
//
//	trusted ──► campaign ──► elected ──► View ─► Step ─► publish ─► evict ─┐
//	   ▲                                  ▲───────── hint, deadline ◄──────┘
//	   └── resign ◄── not trusted, deposed, another one elected, asked to stop
//
// What fails is decided anew from the next view; nothing is retried as it was. Each leadership begins with an empty State, so that what an
// earlier one believed harms nobody. Every write is fenced by the store: a leader that does not know yet that it is deposed changes nothing.
//
// However often it is hinted, the leader looks for a tenth of the time at most: after each look it waits for nine times as long as that
// took, at least 50 ms and at most a second.
package leader
