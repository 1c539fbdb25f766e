package delivery

import (
	"cmp"
	"context"
	"errors"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/extjson"
	"github.com/mongostream/streamer/delivery/fair"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/snapshot"
)

// A PageRequest asks for documents of a collection, for a client that keeps its own progress.
type PageRequest struct {
	Namespace change.Namespace
	Program   *match.Program
	// Account is whose request it is. It is given one page at a time, so that those who ask for
	// many leave their share to the others.
	Account string
	// At is the cluster time of the first page; zero is now. From is the _id at which the page
	// begins; zero is the beginning.
	At   change.Timestamp
	From change.Value
	// FromHash, unless it is nil, is the hash of the _id at which the page begins (change.KeyHash),
	// and From is a value before it.
	FromHash []byte
	// Documents bounds how many are read.
	Documents int
}

// A PageAnswer is a page of documents that match, in relaxed Extended JSON. It shows all changes up
// to At; if it shows a later change, that change comes again after At.
type PageAnswer struct {
	Documents [][]byte
	Keys      []string // of the documents (extjson.AppendKey)
	At        change.Timestamp
	Next      change.Value // zero: this is the last page
}

// Page reads a page. It fails with LogHistoryLost if the changes since At have left the log, so
// that the client must start over, and with AccessLimit if the account asks for too many at a time.
func (h *Hub) Page(ctx context.Context, r PageRequest) (a PageAnswer, err error) {
	if h.cfg.Snapshots == nil {
		return a, fault.Newf(fault.SessionBadRequest, "this node reads no documents")
	}
	if _, err := h.CheckNamespace(ctx, r.Namespace, nil); err != nil {
		return a, err
	}
	of := h.accounts.Enter(r.Account)
	defer h.accounts.Exit(of)
	done, err := of.Page(ctx)
	if err != nil {
		return a, err
	}
	defer done()
	reach, err := h.cfg.Range.Recently(ctx)
	if r.At.IsZero() && err == nil {
		if reach, err = h.cfg.Range.Now(ctx); err == nil {
			r.At = reach.Last
		}
	}
	switch {
	case err != nil:
		return a, fault.New(fault.MongoUnreachable, err)
	case reach.First.Compare(r.At) > 0:
		return a, fault.Newf(fault.LogHistoryLost, "the oplog begins after the first page: start over")
	case reach.Ahead(change.At(r.At)):
		return a, fault.Newf(fault.LogAhead, "the first page was at %s, MongoDB is at %s: start over", r.At, reach.Last)
	}
	q := snapshot.Query{Namespace: r.Namespace, After: r.At, From: r.From, FromHash: r.FromHash, Documents: r.Documents, Bytes: snapshot.PageBytes}
	page, err := h.readPage(ctx, q)
	if errors.Is(err, snapshot.ErrPlaceGone) {
		return a, fault.Newf(fault.LogHistoryLost, "the document at which the page begins is gone: start over")
	}
	if err != nil {
		return a, err
	}
	a = PageAnswer{At: r.At, Next: page.Next}
	err = h.addMatching(ctx, &a, page.Documents, r, of)
	return a, err
}

// addMatching adds the documents that match to an answer.
func (h *Hub) addMatching(ctx context.Context, a *PageAnswer, documents [][]byte, r PageRequest, of *fair.Account) error {
	index := &match.Index{}
	meter := &budgetMeter{left: fair.PageUnits}
	slice := &pageSlice{accounts: h.accounts, of: of, meter: meter, end: meter.left - fair.SliceUnits}
	defer slice.giveBack()
	index.Add(1, r.Program)
	events := change.NewSnapshotter(r.Namespace, r.At)
	var key []byte
	for _, doc := range documents {
		e, err := events.Event(doc)
		if err != nil {
			return err
		}
		if !slice.next(ctx) {
			return context.Cause(ctx)
		}
		found := index.Match(&e, nil, meter)
		if meter.err != nil {
			return meter.err
		}
		if len(found) == 0 {
			continue
		}
		text, err := extjson.Append(nil, doc)
		if err != nil {
			return fault.New(fault.SessionEncoding, err)
		}
		a.Documents = append(a.Documents, text)
		key = extjson.AppendKey(key[:0], e.ID())
		a.Keys = append(a.Keys, string(key))
	}
	return nil
}

// readPage reads a page at the rate of snapshots. Keys that are looked through for the place where
// it begins count as documents, because a client may have made the place up.
func (h *Hub) readPage(ctx context.Context, q snapshot.Query) (snapshot.Page, error) {
	costs := []int{q.Documents}
	if q.FromHash != nil {
		costs = append(costs, snapshot.LocatedKeys)
	}
	for {
		for _, cost := range costs {
			if limit := h.cfg.SnapshotRate; limit != nil {
				if err := limit.WaitN(ctx, min(cost, limit.Burst())); err != nil { // also before a deadline that it would exceed
					return snapshot.Page{}, cmp.Or(context.Cause(ctx), err)
				}
			}
		}
		page, err := h.cfg.Snapshots.Read(ctx, q)
		further, is := errors.AsType[*snapshot.FurtherError](err)
		if !is {
			return page, err
		}
		q.From = further.From
		costs = []int{snapshot.LocatedKeys}
	}
}

// A pageSlice meters an identity's cost of a page in slices: the first at once, the others in turn.
type pageSlice struct {
	accounts *fair.Accounts
	of       *fair.Account
	meter    *budgetMeter
	end      int // the meter's rest then
	slot     bool
}

// next waits, where a slice is spent, for the next one. It returns false if the context ends
// first.
func (s *pageSlice) next(ctx context.Context) bool {
	if s.of == nil || s.meter.left > s.end {
		return true
	}
	s.giveBack()
	s.slot = s.accounts.Acquire(s.of, nil, ctx.Done())
	s.end = s.meter.left - fair.SliceUnits
	return s.slot
}

// giveBack returns the slots, if the identity has them.
func (s *pageSlice) giveBack() {
	if s.slot {
		s.slot = false
		s.accounts.Release(s.of, s.end+fair.SliceUnits-s.meter.left)
	}
}

// A budgetMeter bounds the cost of a page's filter.
type budgetMeter struct {
	left int
	err  error
}

var _ match.Meter = (*budgetMeter)(nil)

// Grant implements match.Meter.
func (m *budgetMeter) Grant(match.ID) int {
	if m.left <= 0 && m.err == nil {
		m.err = fault.Newf(fault.SessionFilterCostly, "the filter costs too much on a page of documents")
	}
	return max(0, min(m.left, match.MaxCost))
}

// Spent implements match.Meter.
func (m *budgetMeter) Spent(_ match.ID, units int, err error) {
	m.left -= units
	if m.err == nil {
		m.err = err
	}
}
