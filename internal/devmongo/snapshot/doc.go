// Package snapshot keeps a server's data and oplog in a file, so that a restart keeps documents, the UUIDs of
// collections and the order of cluster times.
//
// The file is a sequence of BSON documents: a head, every oplog entry, every database, every collection followed by
// its documents, and an end, without which the file is not whole. It is written beside the old one and renamed.
package snapshot
