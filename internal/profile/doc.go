// Package profile lets an operator look inside a running node. It serves Go's profiles and has a
// flight recorder, which keeps an execution trace of the last seconds.
//
// Both are off by default. The listener accepts loopback addresses only, because profiles show
// memory and cost time:
//
//	/debug/pprof/   profiles, for `go tool pprof http://127.0.0.1:6060/debug/pprof/profile`
//	/debug/flight   the last seconds as an execution trace, for `go tool trace`
//
// With a folder for dumps the recorder also writes by itself: when the lag of a partition exceeds a
// threshold, or when a partition makes no progress for some time although the log has more.
//
//	well ──lag or stall──► dump once ──► wrong ──all well──► well
//
// So a recording shows how the trouble began, and a lasting trouble does not replace it. At most
// one recording a minute is written, and the oldest files are deleted beyond the configured number.
// Recording costs a few percent of one core while the node is busy, and some ten MiB of memory.
//
// Failures are logged and never stop a node.
package profile
