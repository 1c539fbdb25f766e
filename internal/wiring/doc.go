// Package wiring assembles a node from its configuration, in the order in which an event flows:
// log, node, gateway, health. The planes of the system meet only here.
//
//	config ─► MongoDB ─► marks, origin ─► log ─► node ─► gateway, health ─► HTTP
//	                         └► registry ─► Solo ─► terms ─► node
//
// Everything that can be wrong from outside is found before anything is claimed: the address to
// listen on, MongoDB, the marks.
//
// # Not obvious, and the tests that guard it
//
//   - Tracing costs no allocation on the path of events and of pages while it is off, and a
//     receiver that does not answer delays nothing
//     (sink.TestBatchesAllocateNothingForTracesThatAreOff,
//     delivery.TestSnapshotsAllocateNothingForTracesThatAreOff,
//     TestReceiverThatIsAwayHoldsNothingUp)
//   - Logging code never waits for the reader of the log (TestNodeWhoseLogNobodyReads,
//     TestLogNeverBlocks)
package wiring
