// Package ledger holds the nouns of handoffs as they are written down ([Record], [Answer], [Sight]), the ports to what keeps them, and
// the [Order] that asks for one, with all reasons to refuse it.
//
// A record stands under the lease of the donor and an answer under that of the recipient: either goes with its node. Every write has a
// revision, and names the ones that it follows; what has been written otherwise meanwhile makes it [ErrStale].
package ledger
