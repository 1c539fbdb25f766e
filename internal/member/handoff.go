package member

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/handoff/ledger"
)

// A Ledger is where handoffs are written down.
type Ledger interface {
	ledger.Keeper
	ledger.Switcher
	ledger.Answerer
}

// A mover moves partitions to other nodes: by handoff where it can, and else by giving them up.
type mover struct {
	*Member

	desk  *handoff.Desk
	tally *tally
	asks  chan []change.Term // terms to be moved; a bound is not needed, as no term is asked for twice
}

func newMover(m *Member) *mover {
	cfg := m.cfg
	v := &mover{Member: m, tally: newTally(cfg.Board), asks: make(chan []change.Term, cfg.Partitions)}
	v.desk = handoff.NewDesk(handoff.Config{
		Self: ledger.Party{Node: cfg.Member.Node, Process: cfg.Member.Process}, Overlap: cfg.Overlap, PrepareTimeout: cfg.PrepareTimeout,
		Concurrency: cfg.Concurrency, Trusted: m.share.Trusted, Clock: cluster.SinceBoot, Ended: v.ended, Logger: cfg.Logger, Registerer: cfg.Registerer,
	}, cfg.Ledger)
	return v
}

// run moves partitions until the context ends.
func (v *mover) run(ctx context.Context) {
	var wg sync.WaitGroup
	telling, told := context.WithCancel(context.WithoutCancel(ctx)) // until the last handoff has ended
	var last sync.WaitGroup
	last.Go(func() { v.tally.run(telling) })
	defer last.Wait()
	defer told()
	wg.Go(func() { _ = v.desk.RunDonor(ctx, v.cfg.Ledger, donor{v.Member}, sessions{v.Member}) })
	wg.Go(func() { _ = v.desk.RunRecipient(ctx, v.cfg.Ledger, recipient{v.Member}, v.cfg.Marks) })
	wg.Go(func() {
		for {
			select {
			case terms := <-v.asks:
				v.move(ctx, terms)
			case <-ctx.Done():
				return
			}
		}
	})
	wg.Wait()
}

// release has terms moved to where the plan wants them. It never blocks.
func (v *mover) release(terms []change.Term) {
	select {
	case v.asks <- terms:
	default:
		v.cfg.Node.Release(terms)
	}
}

// askTimeout bounds how long it takes to have a handoff begun.
const askTimeout = 2 * time.Second

// move begins the handoffs of terms to the nodes that the plan gives them to. What cannot be handed over is given up, and claimed by whom
// the plan wants. Where the ledger does not answer, a term stays, and is asked for again with the next view.
func (v *mover) move(ctx context.Context, terms []change.Term) {
	view, known := v.View()
	var rest []change.Term
	for _, term := range terms {
		to := view.Plan.Owner(term.Partition)
		if to == v.cfg.Member.Node {
			v.share.Keep(term.Partition, term.Epoch) // the plan has changed its mind
			continue
		}
		if !known || to == "" {
			rest = append(rest, term)
			continue
		}
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		order := ledger.Order{
			Partition: term.Partition, To: to, Cause: fmt.Sprintf("plan %d: %s", view.Plan.Version, view.Plan.Cause), By: v.cfg.Member.Node, AllowOlder: true,
		}
		moves, again, err := v.begin(asking, order, view, term)
		cancel()
		switch {
		case moves:
		case again && ctx.Err() == nil:
			v.cfg.Logger.Debug("a handoff cannot be begun yet", "partition", term.Partition, "to", to, "error", err)
			v.share.Keep(term.Partition, term.Epoch)
		default:
			v.cfg.Logger.Debug("a partition is given up without a handoff", "partition", term.Partition, "to", to, "error", err)
			rest = append(rest, term)
		}
	}
	if len(rest) > 0 {
		v.cfg.Node.Release(rest) //nolint:contextcheck // it takes the time of a soft stop
	}
}

// begin has the handoff of a term begun. It reports whether there is one then, or whether to ask again as that cannot be known.
//
// A record that stands may be one of the term. One that a process or a term before has left behind comes to nothing, and nobody would be told of its
// end.
func (v *mover) begin(ctx context.Context, order ledger.Order, view roster.View, term change.Term) (moves, again bool, err error) {
	if _, err := order.Record(view); err != nil {
		return false, false, err
	}
	if _, err = order.Begin(ctx, view, v.cfg.Ledger); fault.Of(err) != fault.HandoffMoving {
		return err == nil, err != nil && fault.Of(err) != fault.HandoffNoOwner, err
	}
	sight, err := v.cfg.Ledger.Look(ctx, term.Partition)
	return err == nil && sight.Record.From.Process == v.cfg.Member.Process && sight.Record.Epoch == term.Epoch, err != nil, err
}

// ended hears what became of a handoff. A partition that stayed though the plan wants it elsewhere is given up.
func (v *mover) ended(r handoff.Report) {
	if r.Side == handoff.Giving {
		v.tally.note(r)
	}
	if r.Side != handoff.Giving || r.Outcome != handoff.Stayed {
		return
	}
	p, e := r.Record.Partition, r.Record.Epoch
	view, _ := v.View()
	if term, served := v.cfg.Node.Term(p); served && term.Epoch == e && view.Plan.Owner(p) != v.cfg.Member.Node {
		v.cfg.Node.Release([]change.Term{term})
		return
	}
	v.share.Keep(p, e)
}

// A donor is the node that gives.
type donor struct{ *Member }

var _ handoff.Donor = donor{}

// Term implements handoff.Donor.
func (d donor) Term(p change.Partition) (change.Term, bool) { return d.cfg.Node.Term(p) }

// Seal implements handoff.Donor.
func (d donor) Seal(p change.Partition, e change.Epoch) (checkpoint.Mark, error) {
	return d.cfg.Node.Seal(p, e)
}

// Unseal implements handoff.Donor.
func (d donor) Unseal(p change.Partition, e change.Epoch) { d.cfg.Node.Unseal(p, e) }

// DeliverOn implements handoff.Donor. Gateways leave the partition by themselves, as soon as they have had something of it from its new owner;
// until then the hub delivers it on, whoever owns it.
func (d donor) DeliverOn(p change.Partition, e change.Epoch, _ time.Duration) {
	d.cfg.Node.Depart(p, e)
}

// A recipient is the node that gets.
type recipient struct{ *Member }

var _ handoff.Recipient = recipient{}

// Warm implements handoff.Recipient. The node's tail carries every partition: it has only to be open.
func (r recipient) Warm(ctx context.Context, _ change.Partition, _ checkpoint.Mark) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !r.cfg.Log.Stats().Open {
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Adopt implements handoff.Recipient.
func (r recipient) Adopt(p change.Partition, e change.Epoch) (change.Term, error) {
	return r.share.Adopt(p, e)
}

// Serve implements handoff.Recipient.
func (r recipient) Serve(ctx context.Context, t change.Term, m checkpoint.Mark) error {
	if err := r.cfg.Node.ServeFrom(ctx, []change.Term{t}, []checkpoint.Mark{m}); err != nil {
		return err
	}
	r.terms.add([]change.Term{t})
	return nil
}

// Drop implements handoff.Recipient.
func (r recipient) Drop(p change.Partition, e change.Epoch) {
	if e == (change.Epoch{}) {
		return
	}
	if term, served := r.cfg.Node.Term(p); served && term.Epoch == e {
		r.cfg.Node.Release([]change.Term{term})
		return
	}
	r.share.Ended(change.Term{Partition: p, Epoch: e})
}

// sessions are the gateways of this node.
type sessions struct{ *Member }

var _ handoff.Sessions = sessions{}

// Tell implements handoff.Sessions.
func (s sessions) Tell(p change.Partition, w handoff.Word, to ledger.Party) {
	n := fanout.Notice{Kind: string(w), At: time.Now(), Partitions: []change.Partition{p}}
	switch w {
	case handoff.SayMoving:
		n.Text = fmt.Sprintf("Partition %d is about to move to node %s.", p, to.Node)
	case handoff.SayMoved:
		n.Text = fmt.Sprintf("Partition %d has moved to node %s.", p, to.Node)
	case handoff.SayStays:
		n.Text = fmt.Sprintf("Partition %d stays with node %s.", p, s.cfg.Member.Node)
	}
	s.cfg.Announce(n)
}

// drain waits until the node owns nothing any more because the others have taken it, for as long as that may take. It ends at once where
// there is nobody to take anything.
func (m *Member) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.DrainTimeout)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	begun := time.Now()
	for len(m.cfg.Node.Status()) > 0 && m.share.Trusted() && m.others() {
		select {
		case <-look.C:
		case <-ctx.Done():
			m.cfg.Logger.Warn("not all partitions have moved to other nodes in time", "partitions", len(m.cfg.Node.Status()), "after", time.Since(begun))
			return
		}
	}
	m.cfg.Logger.Info("drained", "partitions", len(m.cfg.Node.Status()), "after", time.Since(begun))
}

// others reports whether somebody else could take partitions.
func (m *Member) others() bool {
	view, _ := m.View()
	return slices.ContainsFunc(view.Members, func(s roster.Seat) bool {
		return s.Garbled == nil && s.Node != m.cfg.Member.Node && s.Kind != roster.Gateway && s.Status == roster.Healthy
	})
}
