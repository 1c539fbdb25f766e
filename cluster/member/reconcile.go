package member

import (
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
)

// A difference lists the differences between a member's partitions and the plan.
type difference struct {
	Claim   []change.Partition // without an owner: claim them
	Offer   []change.Term      // served here and assigned to others: hand them over
	Return  []change.Term      // not served here since they ended: return their keys
	Blocked []change.Partition // still owned by others
	Ended   int                // terms that ended because another process took their partitions
	Next    time.Duration      // when to look again, if a wait is necessary
}

// Reconcile compares the terms with a view that was requested at asked. It does not compare terms
// that have begun since. claiming says that a claim was under way at asked or later: its partitions
// may become terms soon.
func (h *termSet) Reconcile(view cluster.View, node, process string, asked, now, never time.Duration, claiming bool) (d difference) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.Next = never
	for i, owner := range view.Owners {
		p := change.Partition(i)
		mine := view.Plan.Owner(p) == node
		t := h.mu.tenures[p]
		owns := t != nil && owner.Process == process && owner.Epoch == t.epoch
		switch {
		case t == nil || t.given:
			switch {
			case !mine && owner.Process == process && !claiming: // claimed by a request whose reply was lost
				term := change.Term{Partition: p, Epoch: owner.Epoch}
				h.mu.tenures[p] = &termState{term: term, epoch: term.Epoch, over: true, back: true, begun: now, again: now} // not claimed before it is returned
				d.Return = append(d.Return, term)
			case !mine:
			case t != nil && t.again > now:
				d.Next = min(d.Next, t.again)
			case owner == (cluster.Owner{}) || owner.Process == process:
				d.Claim = append(d.Claim, p)
			default:
				d.Blocked = append(d.Blocked, p)
			}
		case t.back && t.begun < asked && !owns: // it was handed over or taken
			t.given = true
			if mine {
				d.Next = min(d.Next, max(t.again, now))
			}
		case t.back:
			d.Return = append(d.Return, t.term)
		case t.begun >= asked || t.over:
		case !owns:
			t.over = true
			t.end(change.ErrTermLost)
			if !t.offered {
				d.Ended++
			}
		case !mine && t.served && !t.offered:
			t.offered = true
			d.Offer = append(d.Offer, t.term)
		}
	}
	return d
}

// Returned notes that the keys of terms have been returned.
func (h *termSet) Returned(terms []change.Term) {
	h.note(terms, func(t *termState) { t.given = true })
}

// note changes the states of terms that are the latest of their partitions.
func (h *termSet) note(terms []change.Term, set func(*termState)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, term := range terms {
		if t := h.mu.tenures[term.Partition]; t != nil && t.epoch == term.Epoch {
			set(t)
		}
	}
}

// Held returns the terms that run, by partition.
func (h *termSet) Held() (terms []change.Term) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.mu.tenures {
		if !t.over && !t.back {
			terms = append(terms, t.term)
		}
	}
	slices.SortFunc(terms, func(a, b change.Term) int { return int(a.Partition) - int(b.Partition) })
	return terms
}

// Serve notes that the node has accepted terms. They are not offered before: draining a term that
// the node does not serve yet would do nothing, and the node could begin to serve it while its
// partition is transferred.
func (h *termSet) Serve(terms []change.Term) {
	h.note(terms, func(t *termState) { t.served = true })
}

// Keep forgets that a term was offered: the next view may offer it again.
func (h *termSet) Keep(p change.Partition, e change.Epoch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.mu.tenures[p]; t != nil && t.epoch == e {
		t.offered = false
	}
}
