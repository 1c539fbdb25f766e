// Package handoff moves a partition from one living node to another without a gap.
//
// The node that has it is the donor, the node that gets it the recipient. They do not speak to each other: what each does it reads in
// the [ledger], and what it has done it writes there. Nothing is flushed, so nothing waits for a gateway that stalls.
//
//	prepare   a record says who gives what to whom. Sessions are told, and attach to the recipient with their positions;
//	          the recipient warms a silent cursor. The donor delivers, and saves marks.
//	switch    one transaction, if the donor still owns the partition and the record and the recipient's answer stand as they were
//	          read: the owner key goes under the recipient's lease, and the mark to where everything has been acknowledged.
//	serve     the recipient serves each session from the session's own position. Its term begins in hold, like any.
//	overlap   for a window the donor delivers on, without marks, to sessions that have not attached yet.
//	end       the record is taken away, and the donor stops.
//
// A [Transfer] is one side of one handoff as a state machine: [Transfer.Step] is told what was seen and says what to do. A [Desk] does
// it, for all handoffs of one node.
//
//	giving    preparing ──ready──► switching ──switched──► overlapping ──window──► closing ──► Moved
//	              │                    │ refused, unknown: look again
//	              └──deadline, refusal─┴──► abandoning ──closed──► Stayed
//	          the term ends at any time before the switch ──► Lost
//	taking    warming ──warm──► answered ──switched──► serving ──► Moved
//	              └──failed──► refused ──┴──gone──► Stayed        └──► Lost
//
// # What can be relied on
//
// Before the switch the donor owns the partition, and whatever goes wrong it keeps it; after the switch the recipient owns it, and goes on
// alone. There is no third case: the switch is one transaction. A donor that got no answer looks at the ledger, where the record says
// whether it was switched. If not, it sends the same switch again, or gives up by taking the record away, which a switch that comes
// late runs into. Until it knows, it delivers under its term, whose marks the store refuses if the switch was made.
//
// The record stands under the donor's lease and the recipient's answer under the recipient's: a node that dies, is cut off or stands still
// for longer than its lease takes them away. Then, and where an operator or the leader takes the partition from the donor meanwhile, the
// switch fails, and the partition is claimed from its mark as after any crash. docs/model has the protocol as a model that is searched
// exhaustively.
//
// What sessions see twice is what the donor delivers in the overlap, and what lies between the mark and their positions where they have
// none of their own. Nodes whose streams are opened differently may hand over: the mark names the fingerprint, and the recipient opens
// the log at the position's time where it is not its own.
//
// # Who may block
//
// [Desk.RunDonor] and [Desk.RunRecipient] block until their context ends. Every call of a ledger is bounded by [Config.CallTimeout]. A step
// that does not end in time ends the handoff, not the delivery.
package handoff
