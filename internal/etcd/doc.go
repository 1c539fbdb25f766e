// Package etcd stores the shared state of a cluster's nodes in etcd: checkpoints, the origin and
// the gap log ([Store]), members, owners, leader, plan and directives ([ClusterStore]), the owner
// of a single-node cluster ([Registry]), and the history of notices ([NoticeStore]). It is the only
// package that imports clientv3.
//
// All keys of one cluster have one prefix, and their values are JSON:
//
//	<prefix>/<cluster>/origin             the cluster's first start        written once, and by Adopt
//	<prefix>/<cluster>/origin/backend     the place of the checkpoints     written with the origin, or completed
//	<prefix>/<cluster>/owner/00042        the owner of partition 42        written at claim and transfer, under a lease
//	<prefix>/<cluster>/member/<node>      a member's heartbeat             every 2 s, under the same lease
//	<prefix>/<cluster>/leader/<lease>     a candidate for leadership       the oldest key wins; under a separate lease
//	<prefix>/<cluster>/plan               the assignment of partitions     written by the leader; its version is etcd's count of the key's writes
//	<prefix>/<cluster>/wish/pin/00042     an operator's pin                under a lease without renewal: a pin is done when the partition is there
//	<prefix>/<cluster>/wish/drain/<node>  an operator's drain of a node    until it is undone
//	<prefix>/<cluster>/notice/<process>/<number>  a notice                 under a lease for a twenty-fourth of its life
//	<prefix>/<cluster>/gap/<id>           a loss of the oplog              written by AddGap
//	…/checkpoint/exclusive/<subscriber>        an exclusive subscriber's checkpoint     written by Save, ClaimName, Rewind and Put
//	…/checkpoint/shared/<subscriber>/00042     a shared one's, in partition 42          written by Save, Rewind and Put
//	…/history/<as below checkpoint/>/07        former checkpoints, in a ring            written with the checkpoint
//
// # The fence
//
// An epoch is the origin's incarnation and the mod revision of the owner key. No process writes
// that key between claims, so the next claim gets a higher epoch, and writes with the old one are
// refused. The claim of an exclusive subscriber is in its checkpoint, which is written only if it
// has not changed since it was read. [Store] saves many checkpoints in one transaction, each in a
// nested transaction, so that a refused one does not affect the others:
//
//	If  mod(origin) = known
//	Then  for every checkpoint:  If    mod(checkpoint) = last seen, and of a shared one mod(owner/p) = epoch
//	                             Then  put what checkpoint.Merge makes of both, and put it into the history where it is an entry
//	                             Else  get the checkpoint, get owner/p
//
// The result of Else decides. Another owner means [checkpoint.ErrFenced]. A checkpoint that Merge
// would not change needs no write; it may be our own write whose reply was lost. Any other
// checkpoint is now the last seen one, and ours is merged with it again. A write that arrives late
// finds another mod revision than it expects and undoes nothing. If the origin is another one,
// nothing is written and the origin is read again: an operator has raised the incarnation, which
// ends all earlier epochs. A rewind raises the generation in the checkpoint: the term continues,
// and a save with the earlier generation learns the new position.
//
// Beyond checkpoint.MaxSubscribers exclusive subscribers, those with the lowest mod revisions of
// their keys are removed: no clock decides.
//
// etcd accepts 128 operations in a transaction, counted per level: the operations of a level reduce
// the number for its nested transactions. A nested one needs two (two conditions, two puts, two
// gets), so at most 126 go into one.
//
// # Members that do not answer
//
// A member that is cut off from the others, stopped, stalled or slow harms nobody while a majority
// answers. [Client] has a connection to each endpoint and uses one at a time. Every request and
// every stream requires a leader, so that a member without one refuses it at once, and every
// attempt has a timeout below a tenth of the lease's life. A request that fails or takes too long
// is retried at another endpoint if it is idempotent. If not, it returns an error that
// [retryUncertain] recognizes as an unknown outcome; callers retry it with that function, and each
// finds its own write. Once another endpoint has answered, the streams of the silent one are ended
// and opened again there. When all endpoints are too slow the timeout doubles, up to three times. A
// single endpoint has no timeout.
//
// # Members and the leader
//
// A member writes only where the origin is as it was when the member joined, and its heartbeat's
// key is there under its lease: an operator ends all memberships by adopting the checkpoints, and
// one by deleting its key or its lease. A leader writes only where its own key in the election is
// there. These conditions refuse the writes of a process that was frozen for longer than its lease,
// whatever its own state. Directives are written only where the origin has as many partitions.
//
// A claim is a nested transaction for each partition, If it has no owner Then put Else get, so that
// it returns the owners. The epoch is the origin's incarnation and the revision of the put. Keys
// that were written before the origin belong to an earlier incarnation.
//
// Requests with an unknown outcome are sent again until the outcome is known or their context ends:
// all are idempotent. A join and a claim find their own lease under the key, a plan is compared
// with the one to publish, and returns and evictions name the epoch. A claim that arrives after its
// partition was returned claims it again for a member that does not know it: the next view shows
// it.
//
// The client never renews a member's lease by itself; a renewal, over one stream for each lease,
// counts from the sending of the answered request. The leader's lease is the client's own session:
// it only has to end with its process.
//
// # Notices
//
// Process and number make writing a notice again harmless; the revision at which its key was
// created is its place in the history, so that no node's clock matters. A batch is one transaction.
// After a write, the writer deletes the oldest notices beyond the bound. Keys of another form below
// the prefix are neither read nor deleted.
//
// # Blocking
//
// All methods block on the network until their context ends. A call without a connection waits for
// one.
//
// # Not obvious, and the tests that guard it
//
//   - A request whose answer was lost is sent again and finds its own result: a join and a claim
//     by their lease, a plan by its text, a handoff and an eviction by the epoch
//     (TestHistoriesOfClaimsAndMarksHaveOneOwner, TestGiftWhoseAnswerGotLostTakesNothingMore)
//   - A member of etcd that is cut off still accepts clients: every request requires a leader and
//     has a timeout, after which another member is asked (etcd.TestFaultsOfOneMemberHoldNobodyUp,
//     test/process.TestFaultsOfOneEtcdMemberHarmNobody)
//   - etcd counts operations per level: 126 nested transactions of two comparisons fit one
//     (etcd.TestEtcdTakesNoMoreThanSoManyNestedTransactions)
//   - etcd's election waits for its client, not for its context: ours has a client that ends
//     (TestCampaignEndsAlthoughEtcdDoesNotAnswer)
//   - Owners' keys from before an adoption are of an earlier incarnation: nobody owns by them, and
//     the leader may evict them (TestAdoptionEndsEverything)
package etcd
