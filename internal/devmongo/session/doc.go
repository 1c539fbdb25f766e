// Package session keeps what the server knows of each logical session: the outcome of the statements of its
// newest retryable write, so that a statement sent again is answered and not carried out again, and its
// transaction.
//
// A session is locked while a statement with a transaction number runs. Numbers only grow: a smaller one is
// refused with TransactionTooOld (225), a greater one forgets the statements before it and aborts a
// transaction that is still open.
package session
