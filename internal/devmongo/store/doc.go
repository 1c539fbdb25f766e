// Package store holds the collections of devmongo in memory: documents in insertion order with an index on
// _id, writes that log what they did, transactions, and the commands that change collections themselves.
//
// Every write takes the store's lock, changes the collection and appends to the oplog inside it, so that the
// log has the order of the changes. A document is replaced, never changed in place: what a reader has taken
// stays as it is.
//
// The _id of a document is kept as its KeyString: 1, 1L and 1.0 are one _id, and the order of keys is the
// order of values.
//
// Transactions buffer their writes and lock the documents that they change. A transaction that meets a document
// which another has locked, or which changed since the transaction began, gets WriteConflict (112); a write
// outside a transaction gets *Busy and may wait for the transaction to end. Reads in a transaction see its own
// writes over what is committed now: devmongo keeps no old versions.
package store
