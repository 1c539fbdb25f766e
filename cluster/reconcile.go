package cluster

import (
	"slices"
	"time"

	"mongostream/change"
	"mongostream/cluster/roster"
)

// A difference is what lies between what a member owns and what the plan gives it.
type difference struct {
	claim   []change.Partition // owned by nobody: to be claimed
	release []change.Term      // for others: whoever serves them is to give them up
	give    []change.Term      // served by nobody any more: their keys are to be given back
	blocked []change.Partition // still owned by others
	ended   int                // terms that ended because somebody took their partitions
	next    time.Duration      // when to look again, if there is anything to wait for
}

// reconcile compares the terms with a view that was asked for at asked. A term that has begun since is not judged by it. The partitions
// that leave alone are neither claimed nor released.
func (h *holding) reconcile(view roster.View, member Member, asked, now, never time.Duration, alone func(change.Partition) bool) (d difference) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.next = never
	for i, owner := range view.Owners {
		p := change.Partition(i)
		mine := view.Plan.Owner(p) == member.Node
		t := h.mu.tenures[p]
		switch {
		case t == nil || t.given:
			switch {
			case !mine || alone(p):
			case t != nil && t.again > now:
				d.next = min(d.next, t.again)
			case owner == (roster.Owner{}) || owner.Process == member.Process:
				d.claim = append(d.claim, p)
			default:
				d.blocked = append(d.blocked, p)
			}
		case t.back:
			d.give = append(d.give, t.term)
		case t.begun >= asked || t.over:
		case owner.Process != member.Process || owner.Epoch != t.epoch:
			t.over = true
			t.end(change.ErrTermLost)
			d.ended++
		case !mine && !t.released && !alone(p):
			t.released = true
			d.release = append(d.release, t.term)
		}
	}
	return d
}

// given notes that the keys of terms have been given back.
func (h *holding) given(terms []change.Term) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, term := range terms {
		if t := h.mu.tenures[term.Partition]; t != nil && t.epoch == term.Epoch {
			t.given = true
		}
	}
}

// held returns the terms that run, by partition.
func (h *holding) held() (terms []change.Term) {
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
