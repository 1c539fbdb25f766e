package member

import (
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
)

// A claim whose answer got lost has made keys that nobody serves: they are given back where the
// plan has changed meanwhile, and claimed, which finds them, where it has not.
func TestClaimThatNobodyHeardOfIsNotLeftBehind(t *testing.T) {
	clock := func() time.Duration { return time.Second }
	h := newTermSet(t.Context(), clock, granted(0, time.Minute))
	mine := cluster.Owner{Node: "a", Process: "p", Epoch: change.Epoch{Incarnation: 1, Revision: 7}}
	view := cluster.View{Owners: []cluster.Owner{mine, mine}, Plan: cluster.Plan{Owners: []string{"b", "a"}}}
	if d := h.Reconcile(view, "a", "p", time.Second, time.Second, time.Hour, true); len(d.Return) != 0 {
		t.Errorf("given back while a claim is under way that may have made it: %+v", d)
	}
	d := h.Reconcile(view, "a", "p", time.Second, time.Second, time.Hour, false)
	if len(d.Return) != 1 || d.Return[0].Partition != 0 || d.Return[0].Epoch != mine.Epoch || len(d.Claim) != 1 || d.Claim[0] != 1 || len(d.Offer)+len(d.Blocked) != 0 {
		t.Errorf("%+v", d)
	}
	view.Plan.Owners[0] = "a" // again: a late request to give it back must not take it from a term
	if d := h.Reconcile(view, "a", "p", time.Second, time.Second, time.Hour, false); len(d.Return) != 1 || len(d.Claim) != 1 {
		t.Errorf("claimed before it is given back: %+v", d)
	}
	h.Returned(d.Return)
	if d := h.Reconcile(view, "a", "p", time.Second, time.Second, time.Hour, false); len(d.Return) != 0 || len(d.Claim) != 2 {
		t.Errorf("not claimed after it was given back: %+v", d)
	}
}

// What was handed over needs not be given back, and what is handed over to a member is claimed,
// which finds it.
func TestWhatIsHandedOverIsNotGivenBack(t *testing.T) {
	clock := func() time.Duration { return time.Second }
	h := newTermSet(t.Context(), clock, granted(0, time.Minute))
	epoch := change.Epoch{Incarnation: 1, Revision: 7}
	term := h.Begin([]change.Partition{0}, []change.Epoch{epoch}, time.Second)[0]
	view := cluster.View{
		Owners: []cluster.Owner{{Node: "a", Process: "p", Epoch: epoch}, {Node: "a", Process: "p", Epoch: epoch}},
		Plan:   cluster.Plan{Owners: []string{"b", "a"}},
	}
	look := func() difference {
		return h.Reconcile(view, "a", "p", 2*time.Second, 2*time.Second, time.Hour, false)
	}
	if d := look(); len(d.Offer) != 0 {
		t.Errorf("offered before it is served: %+v", d)
	}
	h.Serve([]change.Term{term})
	if d := look(); len(d.Offer) != 1 || len(d.Claim) != 1 || d.Claim[0] != 1 || len(d.Return) != 0 {
		t.Errorf("%+v", d)
	}
	if d := look(); len(d.Offer) != 0 {
		t.Errorf("asked twice: %+v", d)
	}
	h.Keep(0, epoch)
	if d := look(); len(d.Offer) != 1 {
		t.Errorf("not asked again: %+v", d)
	}
	h.Return(term)
	if d := look(); len(d.Return) != 1 {
		t.Errorf("not given back: %+v", d)
	}
	view.Owners[0] = cluster.Owner{Node: "b", Process: "q", Epoch: change.Epoch{Incarnation: 1, Revision: 8}}
	if d := look(); len(d.Return)+len(d.Offer)+d.Ended != 0 {
		t.Errorf("after it was handed over: %+v", d)
	}
}
