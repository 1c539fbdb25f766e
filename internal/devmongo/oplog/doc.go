// Package oplog is the log of devmongo: a bounded sequence of entries in cluster time order, each kept as the
// change event that a change stream with default options shows, encoded once when it is written.
//
// Everything else is derived from that: the documents of local.oplog.rs (Documents), and the events of streams
// with other options (package stream). An entry without an event (a create, a no-op) keeps its oplog document.
//
//	writer ─► Append ─► clock ─► encode ─► segment ─► committed ─► readers wake
//
// Entries are numbered from 0 (seq) and never change. They live in segments; a reader takes a slice of one
// segment under a read lock and works on it outside, so readers hold up neither each other nor writers. When
// the log is larger than its bound the oldest entries go; a reader that stood there finds out by its seq.
//
// One transaction's entries share a cluster time and go together.
//
// The clock never repeats or goes back: a second of wall time gives increments from 1 on, and a wall clock
// that goes back keeps the last second. Committed is the majority point: equal to the newest entry, or behind
// it while Hold holds it back.
//
// Log is safe for concurrent use. Append blocks for nobody but other writers.
package oplog
