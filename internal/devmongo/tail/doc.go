// Package tail answers finds on local.oplog.rs from the log, whose documents exist only while somebody reads them.
//
// A Tail is a cursor's source: it reads on from where it stands, and a tailable one stays at the end of the log for
// what comes. When the log no longer has the entry that it saw last, it fails with CappedPositionLost (136).
package tail
