// Package node is what the commands of a server have in common: the node that they work on, and how one command goes
// through it.
//
//	Read ─► session, transaction number, time limit
//	Run  ─► transaction or retryable write ─► read concern ─► the command ─► write concern
//	Succeed or Fail ─► ok, error labels, cluster time
//
// A Request is used by one goroutine. Run holds the session's lock while a command with a transaction number runs; a
// statement that meets a transaction's lock waits (Patiently), at most until that transaction is a minute old, and
// aborts it then. Waiting ends with the request's time limit and with the connection.
//
// What a command appended to its reply before it failed is thrown away by the caller of Run.
package node
