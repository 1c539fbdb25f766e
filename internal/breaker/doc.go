// Package breaker keeps a node from hammering a dependency that fails: circuit breakers
// (sony/gobreaker) whose states are metrics and notices.
//
//	closed ──threshold failures in a row──► open ──timeout──► half-open ──success──► closed
//	                                          ▲                   └──failure──┐
//	                                          └───────────────────────────────┘
package breaker
