// Package cursor keeps the server's open cursors between requests: Batch collects the documents of one reply,
// Registry finds a cursor by its id and lets one request use it at a time.
//
// A cursor is checked out by a getMore and checked in again, or closed. Kill ends one at once: a request that
// waits on it is told through Killed. A cursor that nobody used for its timeout may be reaped.
package cursor
