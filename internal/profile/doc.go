// Package profile lets an operator look inside a running node: Go's profiles, and a flight recorder that remembers what the
// program did in the last seconds before it was too late.
//
// Both are off unless they are asked for. The listener takes loopback addresses only, because profiles show memory and cost time:
//
//	/debug/pprof/   profiles, for `go tool pprof http://127.0.0.1:6060/debug/pprof/profile`
//	/debug/flight   the last seconds as an execution trace, for `go tool trace`
//
// With a folder to dump into, the recorder also writes when something is wrong by itself: when a partition lags further behind than
// a threshold, or has stood at one position for longer than another one although there is more in the log.
//
//	well ──lag or stall──► dump once ──► wrong ──all well──► well
//
// So a recording shows the beginning, and a trouble that lasts does not push it out. There is at most one a minute, and no more files
// than configured: the oldest goes. Recording costs a few percent of one core while the node is busy, and some ten MiB.
//
// Nothing here ever stops a node: what fails is logged.
package profile
