// Package dedup drops changes that come a second time under another resume token. It complements
// positions, which drop repetitions under the same token.
//
// MongoDB gives a change another token where
//
//   - it has been upgraded or downgraded while a stream was open: the versions of tokens differ,
//     and order the events of one time differently,
//   - the options of the stream have changed: a large event is split elsewhere, or not at all, and
//     its token names another fragment.
//
// Such tokens are not compared. A stream that is opened again at a cluster time, because its token
// was refused or cannot be proven to be in the log, yields all changes of that time again, and the
// window drops exactly those that the reader had.
//
// # The key
//
// A change is identified by its [change.Ref]: cluster time, place in the transaction, collection
// and document. Less would lose changes: a document may change several times in a transaction, and
// changes of several shards, and unrelated ones since MongoDB 8.0, may share a time and a place.
// Nothing is dropped within one form, in which the tokens themselves distinguish changes.
//
// # The bound
//
// Positions order the log by time in every form, so only changes of the latest time are ever asked
// for, and the window forgets all others. It is an LRU with bounded size and age: a forgotten
// change may be delivered again, but is never lost.
package dedup
