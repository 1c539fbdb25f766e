// Package streamer is one node's data flow: a [Consumer] takes one partition through the whole pipeline for the length of one term,
// and the [Node] starts and stops consumers, keeps their marks, and connects subscribers to them.
//
//	lane ─► dedup ─► delivery ─► sessions
//	                    ack ◄───────┘
//	 checkpoint ◄── low-water
//
// A consumer never holds up another one: when a session has no credit, its consumer lets go of the reply it was reading and waits;
// the log keeps the rest.
//
// # Ending
//
// The node stops softly when its context ends: it takes no new sessions, stops reading, waits (10 s) for what was delivered to be
// acknowledged, saves the last marks (5 s) and closes. What was not acknowledged by then stands behind the mark and comes again. A
// term that is lost ends its consumer at once, without a mark.
package streamer
