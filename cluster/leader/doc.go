// Package leader leads a cluster. A [Leader] campaigns for election. While elected, it reads the
// cluster's state on every hint and at least once per heartbeat interval, asks package plan for a
// decision, and applies it: it publishes plans, evicts owners, and posts notices.
//
//	trusted ──► campaign ──► elected ──► View ─► Step ─► publish ─► evict ─┐
//	   ▲                                  ▲───────── hint, deadline ◄──────┘
//	   └── resign ◄── not trusted, deposed, another one elected, asked to stop
//
// A failed write is not retried: the next view leads to a new decision. Each leadership starts with
// a new Planner, so outdated assumptions of an earlier leadership do no harm. The store fences
// every write: a deposed leader that has not noticed it yet changes nothing.
//
// However many hints arrive, the leader is busy for at most a tenth of the time: after each round
// it pauses for nine times the duration of the round, at least 50 ms and at most one second.
package leader
