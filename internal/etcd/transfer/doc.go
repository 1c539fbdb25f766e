// Package transfer keeps the ledger of handoffs in etcd.
//
//	<prefix>/<cluster>/handoff/00042         the record   under the lease of the donor's membership
//	<prefix>/<cluster>/handoff/00042/answer  the answer   under the lease of the recipient's
//
// The switch is one transaction over these, the owner key and the mark:
//
//	If    the origin stands, mod(owner/p) = epoch, mod(handoff/p) = record, mod(handoff/p/answer) = answer, mod(mark/p) = last read
//	Then  put owner/p under the answer's lease, put mark/p and its history, put handoff/p as switched
//
// Its revision is the new epoch. A lease that has ended has taken its key away, so that the comparison fails; etcd itself refuses to put
// under one that is gone. Where marks are kept in another store, the donor's mark is saved there first, under its epoch, and the
// transaction is the same without the mark.
package transfer
