package rowtest

import (
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/row"
)

// A world is all that a store keeps beside rows.
type world struct {
	Origin  checkpoint.Origin
	Marks   []checkpoint.Mark
	Loaded  checkpoint.Mark
	History []checkpoint.Mark
	Gaps    []checkpoint.Gap
	Raw     string
}

const marked change.Partition = 7

func (h harness) world() (w world) {
	h.Helper()
	s := h.Reopen()
	var errs [5]error
	w.Origin, errs[0] = s.Origin(h.Context())
	w.Marks, errs[1] = s.List(h.Context())
	w.Loaded, errs[2] = s.Load(h.Context(), marked)
	w.History, errs[3] = s.History(h.Context(), marked)
	w.Gaps, errs[4] = s.Gaps(h.Context())
	for _, err := range errs {
		if err != nil {
			h.Fatal(err)
		}
	}
	w.Raw = string(h.Raw(marked))
	return w
}

// marks saves marks, history and a gap, and returns the term of the partition that is looked at.
func (h harness) marks() (change.Term, checkpoint.Origin) {
	h.Helper()
	o, err := h.Store.Found(h.Context(), checkpointtest.Origin("c1"))
	if err != nil {
		h.Fatal(err)
	}
	terms := h.Begin(3, marked)
	if _, err := h.Store.Claim(h.Context(), terms); err != nil {
		h.Fatal(err)
	}
	for n := range 3 {
		for _, term := range terms {
			h.mark(term, 10+n)
		}
	}
	err = h.Store.AddGap(h.Context(), checkpoint.Gap{
		Partition: marked, From: checkpointtest.Event(2), To: checkpointtest.Event(5), Reason: "history_lost",
		Epoch: terms[1].Epoch, Found: h.now, By: "node-a",
	})
	if err != nil {
		h.Fatal(err)
	}
	return terms[1], o
}

func (h harness) mark(term change.Term, event int) {
	h.Helper()
	m := checkpointtest.MarkAt(term, checkpointtest.Event(event))
	m.Reason = checkpoint.ReasonHandoff
	if err := h.Store.Save(h.Context(), []checkpoint.Mark{m})[0]; err != nil {
		h.Fatal(err)
	}
}

func testMarks(h harness) {
	term, _ := h.marks()
	before := h.world()
	if len(before.Marks) != 2 || len(before.History) != 3 || len(before.Gaps) != 1 || before.Raw == "" {
		h.Fatalf("there is %+v", before)
	}
	same := func(what string) {
		h.Helper()
		if diff := cmp.Diff(before, h.world(), cmpopts.EquateEmpty()); diff != "" {
			h.Errorf("%s has changed the rest (-before +after):\n%s", what, diff)
		}
	}
	var rows []checkpoint.Row
	for _, name := range []string{"../gap/x", "../history/00007/00", "../mark/00007", "7", "gap", "mark", "origin"} {
		r := h.row(name, 5)
		h.save(r)
		rows = append(rows, r)
	}
	same("saving rows")
	h.wantAll(rows...)
	same("listing rows")
	h.older(rows[0].Gateway, row.Life+2*time.Hour)
	h.wantAll(rows[1:]...)
	same("a row that is gone")
	for _, r := range rows[1:4] {
		if err := h.rows.DeleteRow(h.Context(), r.Gateway); err != nil {
			h.Fatal(err)
		}
	}
	same("deleting rows")
	// And the marks go on as they would.
	h.mark(term, 20)
	after := h.world()
	if after.Loaded.Position.Compare(checkpointtest.Event(20)) != 0 || len(after.History) != len(before.History)+1 {
		h.Errorf("after a save there is %+v", after)
	}
	h.wantAll(rows[4:]...)
}

func testOperators(h harness) {
	_, o := h.marks()
	r := h.row("gw-1", 50)
	r.Positions = at(marked, checkpointtest.Event(60))
	h.save(r)
	if _, err := h.Store.Rewind(h.Context(), marked, checkpointtest.Event(4), "ann", "orders were lost downstream"); err != nil {
		h.Fatal(err)
	}
	h.wantAll(r)
	next := o
	next.Incarnation++
	if err := h.Store.Adopt(h.Context(), o, next); err != nil {
		h.Fatal(err)
	}
	h.wantAll(r)
	if err := h.Store.Delete(h.Context(), marked); err != nil {
		h.Fatal(err)
	}
	h.wantAll(r)
	// A row belongs to no term: it is saved although every epoch is fenced.
	r.Base = checkpointtest.Event(55)
	h.save(r)
	h.wantAll(r)
}
