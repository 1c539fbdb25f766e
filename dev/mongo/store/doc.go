// Package store holds the collections of devmongo in memory: documents in insertion order with an
// index on _id, writes that are logged, transactions, sessions, the commands that change
// collections, the snapshot that survives a restart, and a generator of changes.
//
// Every write takes the store's lock, changes the collection and appends to the oplog, so the log
// has the order of the changes. A document is replaced, never changed in place, so a reader may
// keep it. The _id of a document is kept as its KeyString: 1, 1L and 1.0 are one _id, and the order
// of keys is the order of values.
//
// A transaction buffers its writes and locks the documents that it changes. A transaction that
// needs a document which another one has locked, or which changed after the transaction began, gets
// WriteConflict (112). A write outside a transaction gets *[Busy] and may wait for the transaction
// to end. Reads in a transaction see its own writes over the currently committed state: devmongo
// keeps no old versions.
//
// A [Session] keeps the transaction of a logical session, and the outcome of the statements of its
// newest retryable write, so that a statement that is sent again is answered and not executed
// again. It is locked while a statement with a transaction number runs. Numbers only grow: a
// smaller one is refused with TransactionTooOld (225), a greater one forgets the statements before
// it and aborts a transaction that is still open.
//
// Generate writes documents and their events from templates, in which only the bytes that differ
// from event to event change. The log's own encoder makes the template, so generated events equal
// those of real writes byte for byte.
package store
