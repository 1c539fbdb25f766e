package handoff

import (
	"context"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/handoff/ledger"
)

// RunDonor gives away what records say that this process is to give, until the context ends. What has not been switched by then stays, and
// an overlap ends at once.
func (d *Desk) RunDonor(ctx context.Context, switcher ledger.Switcher, donor Donor, sessions Sessions) error {
	return d.dispatch(ctx, part{
		side: Giving,
		mine: func(r ledger.Record) bool { return r.From == d.cfg.Self },
		build: func(r ledger.Record) (*Transfer, hands) {
			t := NewGiving(d.cfg, r)
			g := &giver{transfer: t, record: r, keeper: d.keeper, switcher: switcher, donor: donor, sessions: sessions, window: d.cfg.Overlap}
			if term, served := donor.Term(r.Partition); served && term.Epoch == r.Epoch {
				g.term = term
			}
			return t, g
		},
	})
}

// A giver is the hands of a donor.
type giver struct {
	transfer *Transfer
	record   ledger.Record
	term     change.Term // without a context where the partition is not served under the record's epoch
	keeper   ledger.Keeper
	switcher ledger.Switcher
	donor    Donor
	sessions Sessions
	window   time.Duration
}

func (g *giver) do(ctx context.Context, a Action) (ledger.Sight, error) {
	p, e := g.record.Partition, g.record.Epoch
	switch a {
	case Look:
		return g.keeper.Look(ctx, p)
	case Switch:
		return g.trade(ctx)
	case Close:
		return ledger.Sight{}, g.switcher.Close(ctx, g.transfer.record)
	case TellMoving:
		g.sessions.Tell(p, SayMoving, g.record.To)
	case TellMoved:
		g.sessions.Tell(p, SayMoved, g.record.To)
	case TellStays:
		g.sessions.Tell(p, SayStays, g.record.To)
	case Unseal:
		g.donor.Unseal(p, e)
	case DeliverOn:
		g.donor.DeliverOn(p, e, g.window)
	case Stop:
		g.donor.DeliverOn(p, e, 0)
	default:
		panic("handoff: a donor cannot " + string(a))
	}
	return ledger.Sight{}, nil
}

// trade seals the term and sends the switch.
func (g *giver) trade(ctx context.Context) (ledger.Sight, error) {
	mark, err := g.donor.Seal(g.record.Partition, g.record.Epoch)
	if err != nil {
		return ledger.Sight{}, fmt.Errorf("seal: %w", err)
	}
	if err := g.term.Err(); err != nil {
		return ledger.Sight{}, err
	}
	mark.Reason = checkpoint.ReasonHandoff
	switched, err := g.switcher.Switch(ctx, g.transfer.record, g.transfer.answer, mark)
	return ledger.Sight{Record: switched}, err
}

func (g *giver) over() (<-chan struct{}, error) {
	if g.term.Context == nil {
		return nil, change.ErrTermLost
	}
	return g.term.Context.Done(), g.term.Err()
}

func (g *giver) warmed() <-chan error { return nil }

func (g *giver) rest() {}
