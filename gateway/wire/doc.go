// Package wire is what sessions are sent, whatever carries it: places in the log, batches of events, and the forms in which events are
// written.
package wire
