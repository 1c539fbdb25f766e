// Package handoff moves partitions between running nodes, and tells operators how they move.
//
// A partition moves when the plan assigns it to another node: because nodes have joined or are
// stopping, to balance the load, or because an operator asked for it ([Request], [Drain]). The
// sequence is always the same:
//
//	offer ──► drain ──► save ──► transfer ──► serve (target)
//	  │         │        │          │  └────► broadcast window (donor)
//	  ▼         ▼        ▼          ▼
//	 kept    bounded  replayed   returned
//
// The steps, and their failures:
//
//   - offer: the donor's member sees in a view that the plan assigns a partition of its own to
//     another node, and offers the term to the [Donor]. If there is no healthy node for it, the
//     donor keeps the term; it is offered again with a later view.
//   - drain: the donor stops delivering the partition to shared subscribers (sinks), and waits
//     until they have acknowledged the changes that they received, for at most the flush timeout.
//     The target redelivers changes that are not acknowledged by then.
//   - save: the checkpoints of the shared subscribers are saved under the donor's epoch. If that
//     fails, the target begins at the last saved checkpoint, and redelivers the changes after it.
//   - transfer: one transaction of the store puts the partition under the target's lease with a new
//     epoch, if the donor's epoch still owns it and the target is a live member. From then on the
//     donor's epoch is fenced: it saves nothing more. If the transaction fails, the term is
//     returned: the partition has no owner until the node that the plan names claims it, within a
//     view. If the reply is lost, the next view shows the owner; the donor has ended its term in
//     either case.
//   - serve: the target's member finds the partition its own, and its node begins where the saved
//     checkpoints say. If it does not, the leader counts a failure, evicts it and assigns the
//     partition elsewhere.
//   - broadcast window: exclusive subscribers need no owner, but some follow the owners to divide
//     the load. Sessions of these that have attached the partition at the donor get it from there
//     for Config.Overlap more, beside the target, until they detach it because they have caught up
//     at the target. Then, or when the donor's lease ends before, the donor detaches it from those
//     that are left, and they hear so in their stream. Shared subscribers have no window: their
//     terms have ended with the drain.
//
// "Return" is the way back at every step: a term that was drained and not transferred, that the
// store refused, or whose lease ended goes back to the member, which gives the key up so that
// another node can claim it. A donor that dies or freezes at any step loses its lease, and its
// partitions are claimed from their last checkpoints, as after every crash; a frozen donor's term
// is over by its own clock before that (change.Term). A target that dies after the transfer costs
// as much: the rest of its lease.
//
// Files: donor.go is the node's side. request.go, drain.go and watch.go are the operator's: they
// write a directive, and follow its execution by the nodes. check.go rejects impossible requests.
// history.go reads past handoffs from the notices.
//
// # Not obvious, and the tests that guard it
//
//   - A session whose broadcast window is over loses its partition right before a batch is
//     delivered, and that batch says so: queued events are withheld, its checkpoint does not pass
//     them, and a client that attaches the partition again gets it from its own position
//     (delivery.TestPartitionsAreDeliveredUntilTheirWindowsAreOver,
//     delivery.TestNothingOfAWindowIsHandedOverAfterTheLeaseHasEnded,
//     TestWindowEndsWithTheLeaseOfTheDonor, simulation.TestCluster)
//   - Sinks have no broadcast window: a change that arrives twice at a target arrives from one
//     node (TestNoChangeIsPublishedByTwoOwners)
//   - A handoff is one transaction: if the donor's epoch owns the partition and the target's
//     process is a member. A late or repeated one changes nothing (simulation.TestCluster, make
//     model)
//   - The key of an owner carries the traceparent of the handoff that has made it the owner, so
//     that both nodes record one trace; a node that does not know the field ignores it
//     (TestHandoffIsOneTraceOverBothNodes, etcd.TestOwnersOfEarlierVersionsAreRead)
package handoff
