// Package etcd keeps marks, the origin and the gap log in etcd; packages below it keep who owns the partitions, who is there, and what
// else nodes share. They are the only packages that know clientv3.
//
// Everything of one cluster of ours stands under one prefix and is JSON:
//
//	<prefix>/<cluster>/origin             where it all began          written once, and by Adopt
//	<prefix>/<cluster>/origin/backend     where marks are kept        written with the origin, or completed
//	<prefix>/<cluster>/owner/00042        who owns partition 42       written at claim and transfer, under a lease
//	<prefix>/<cluster>/member/<node>      who is there, how it does   a heartbeat every 2 s, under the same lease
//	<prefix>/<cluster>/leader/<lease>     who wants to lead           the oldest key's does, under a lease of its own
//	<prefix>/<cluster>/plan               who should own what         written by the leader
//	<prefix>/<cluster>/mark/00042         where partition 42 stands   written by Save and Rewind
//	<prefix>/<cluster>/history/00042/07   where it stood, a ring      written with the mark
//	<prefix>/<cluster>/gap/<id>           what the log had lost       written by AddGap
//	<prefix>/<cluster>/row/<gateway>      how far a gateway got       written by SaveRow, under a lease of a day
//
// # The fence
//
// An epoch is the origin's incarnation and the mod revision of the owner key, which nobody writes between claims: whoever
// claims next gets a higher one, and what carries the old one is refused. [Store] saves many marks in one transaction,
// each in a nested one of its own, so that one that is refused costs the others nothing:
//
//	If  mod(origin) = known
//	Then  for every mark:  If    mod(owner/p) = epoch  and  mod(mark/p) = last seen
//	                       Then  put mark/p, and put history/p/<place> where the mark is an entry
//	                       Else  get owner/p, get mark/p
//
// What Else returns decides: another owner is [checkpoint.ErrFenced], a mark at our position or a later one needs nothing (it
// may be our own write whose answer got lost), and an earlier one is the last seen now, with which ours is tried again. A
// write that arrives late meets another mod revision than it expects and undoes nothing. Where the origin is another one,
// nothing is written and it is read again: an operator has raised the incarnation, which ends every epoch before. A rewind deletes
// the owner key in the transaction that moves the mark back, which ends the epoch that owned the partition.
//
// etcd takes 128 operations in a transaction, counted per level: what a level uses is taken off what its nested transactions
// may use. A nested one needs two (two conditions, two puts, two gets), so at most 126 go into one.
//
// # Members that do not answer
//
// A member that is cut off from the others, stopped, stalled or slow harms nobody while a majority answers. [Client] has a connection to each
// endpoint and uses one at a time. Every request and every stream requires a leader, so that a member without one refuses it at once, and every
// attempt has a timeout below a tenth of the lease's life. What fails or takes too long is retried at another endpoint if it is safe to carry
// it out twice; if not, it returns an error of which [Insist] knows that the outcome is unknown, and callers repeat it with Insist: each
// finds its own deed. Once another endpoint has answered, streams of the one that did not are ended, and are opened again there. When all
// endpoints are too slow the timeout doubles, up to three times. A single endpoint has no timeout.
//
// # Who may block
//
// All methods block on the network until their context ends. A call without a connection waits for one.
package etcd
