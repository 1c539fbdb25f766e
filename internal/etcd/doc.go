// Package etcd keeps in etcd what the nodes of a cluster share: checkpoints, the origin and the gap
// log ([Store]), members, owners, leader, plan and directives ([ClusterStore]), the owner of a
// cluster of one ([Registry]), and the history of notices ([NoticeStore]). It is the only package
// that imports clientv3.
//
// Everything of one cluster of ours stands under one prefix and is JSON:
//
//	<prefix>/<cluster>/origin             where it all began          written once, and by Adopt
//	<prefix>/<cluster>/origin/backend     where checkpoints are kept  written with the origin, or completed
//	<prefix>/<cluster>/owner/00042        who owns partition 42       written at claim and transfer, under a lease
//	<prefix>/<cluster>/member/<node>      who is there, how it does   a heartbeat every 2 s, under the same lease
//	<prefix>/<cluster>/leader/<lease>     who wants to lead           the oldest key's does, under a lease of its own
//	<prefix>/<cluster>/plan               who should own what         written by the leader; its version is etcd's count of the key's writes
//	<prefix>/<cluster>/wish/pin/00042     where operators want it     under a lease that nobody renews: a pin is done when the partition is there
//	<prefix>/<cluster>/wish/drain/<node>  whom they want empty        until that is taken back
//	<prefix>/<cluster>/notice/<process>/<number>  a notice            under a lease for a twenty-fourth of its life
//	<prefix>/<cluster>/gap/<id>           what the oplog had lost     written by AddGap
//	…/checkpoint/exclusive/<subscriber>        where an exclusive subscriber is        written by Save, ClaimName, Rewind and Put
//	…/checkpoint/shared/<subscriber>/00042     where a shared one is in partition 42   written by Save, Rewind and Put
//	…/history/<as below checkpoint/>/07        where it was, a ring                    written with the checkpoint
//
// # The fence
//
// An epoch is the origin's incarnation and the mod revision of the owner key, which nobody writes
// between claims: whoever claims next gets a higher one, and what carries the old one is refused.
// The claim of an exclusive subscriber is in its checkpoint, which is written only where it is the
// one that was read. [Store] saves many checkpoints in one transaction, each in a nested one of its
// own, so that one that is refused costs the others nothing:
//
//	If  mod(origin) = known
//	Then  for every checkpoint:  If    mod(checkpoint) = last seen, and of a shared one mod(owner/p) = epoch
//	                             Then  put what checkpoint.Merge makes of both, and put it into the history where it is an entry
//	                             Else  get the checkpoint, get owner/p
//
// What Else returns decides: another owner is [checkpoint.ErrFenced], a checkpoint that Merge would
// not change needs nothing (it may be our own write whose answer got lost), and any other is the
// last seen now, with which ours is merged again. A write that arrives late meets another mod
// revision than it expects and undoes nothing. Where the origin is another one, nothing is written
// and it is read again: an operator has raised the incarnation, which ends every epoch before. A
// rewind raises the generation in the checkpoint: the term goes on, and whoever saves with the
// generation before learns where it was moved.
//
// Of more than checkpoint.MaxSubscribers exclusive subscribers those make room whose keys have the
// lowest mod revisions: no clock decides.
//
// etcd takes 128 operations in a transaction, counted per level: what a level uses is taken off
// what its nested transactions may use. A nested one needs two (two conditions, two puts, two
// gets), so at most 126 go into one.
//
// # Members that do not answer
//
// A member that is cut off from the others, stopped, stalled or slow harms nobody while a majority
// answers. [Client] has a connection to each endpoint and uses one at a time. Every request and
// every stream requires a leader, so that a member without one refuses it at once, and every
// attempt has a timeout below a tenth of the lease's life. What fails or takes too long is retried
// at another endpoint if it is safe to carry it out twice; if not, it returns an error of which
// [retryUncertain] knows that the outcome is unknown, and callers repeat it with it: each finds its
// own write. Once another endpoint has answered, streams of the one that did not are ended, and are
// opened again there. When all endpoints are too slow the timeout doubles, up to three times. A
// single endpoint has no timeout.
//
// # Members and the leader
//
// A member writes only where the origin is as it was when the member joined, and its heartbeat's
// key is there under its lease: an operator ends all memberships by adopting the checkpoints, and
// one by deleting its key or its lease. A leader writes only where its own key in the election is
// there. A process that has stood still for longer than its lease lives is refused by these
// conditions, whatever it believes. Directives are written only where the origin has as many
// partitions.
//
// A claim is a nested transaction for each partition, If nobody owns it Then put Else get, so that
// it returns the owners. The epoch is the origin's incarnation and the revision of the put. Keys
// that were written before the origin are of an incarnation before.
//
// Requests with an unknown outcome are sent again until it is known, or their context ends: each
// can be carried out twice. A join finds its own lease under the key, a claim its own too, a plan
// is compared with the one to be published, and what gives or evicts names the epoch. A claim that
// arrives after its partition was given back claims it again for a member that does not know: the
// next view shows it.
//
// The client never renews a member's lease by itself; a renewal, over one stream for each lease,
// counts from when the request was sent that was answered. The leader's lease is the client's own
// session: all that is asked of it is that it ends with its process.
//
// # Notices
//
// Process and number make writing a notice again harmless; the revision at which its key was
// created is its place in the history, so that no node's clock matters. A batch is one transaction.
// Whoever has written deletes the oldest notices beyond the bound. Keys of another form below the
// prefix are neither read nor deleted.
//
// # Who may block
//
// All methods block on the network until their context ends. A call without a connection waits for
// one.
package etcd
