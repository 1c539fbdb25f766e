// Package ack computes how far a lane has been acknowledged: its low-water position.
//
// Nothing is kept per event. A session has acknowledged everything up to one position and been sent everything up to another;
// while these differ, the lane stands where that session's acknowledgements are, and otherwise where its own reading is.
//
//	log        ──────●──────────●──────────────●──────►
//	              acked       sent         progress
//	session a         ╰─ in flight ─╯
//	session b                              nothing in flight
//	low-water         ▲ of a
//
// The package is pure: no goroutines, no clock, no locks. Whoever shares a Tracker guards it.
package ack
