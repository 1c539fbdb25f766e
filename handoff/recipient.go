package handoff

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/handoff/ledger"
)

// RunRecipient takes what records say that this process is to get, until the context ends. What has not been switched by then it refuses,
// and what is not served yet it gives back.
func (d *Desk) RunRecipient(ctx context.Context, answerer ledger.Answerer, recipient Recipient, marks Marks) error {
	return d.dispatch(ctx, part{
		side: Taking,
		mine: func(r ledger.Record) bool { return r.To == d.cfg.Self && r.Phase == ledger.Prepared },
		build: func(r ledger.Record) (*Transfer, hands) {
			t := NewTaking(d.cfg, r)
			return t, &taker{
				transfer: t, record: r, keeper: d.keeper, answerer: answerer, recipient: recipient, marks: marks, ended: make(chan error, 1),
				cold: func() {},
			}
		},
	})
}

// A taker is the hands of a recipient.
type taker struct {
	transfer  *Transfer
	record    ledger.Record
	keeper    ledger.Keeper
	answerer  ledger.Answerer
	recipient Recipient
	marks     Marks

	warming sync.WaitGroup
	cold    func() // ends the warming
	ended   chan error
}

func (k *taker) do(ctx context.Context, a Action) (ledger.Sight, error) {
	p, t := k.record.Partition, k.transfer
	switch a {
	case Look:
		return k.keeper.Look(ctx, p)
	case Warm:
		k.warm(context.WithoutCancel(ctx)) // it takes as long as the step may, not as one call
	case Accept:
		return ledger.Sight{}, k.answerer.Answer(ctx, t.record, "")
	case Refuse:
		return ledger.Sight{}, k.answerer.Answer(ctx, t.record, t.refusal)
	case Serve:
		return ledger.Sight{}, k.serve(ctx)
	case Drop:
		k.rest()
		k.recipient.Drop(p, t.epoch)
	default:
		panic("handoff: a recipient cannot " + string(a))
	}
	return ledger.Sight{}, nil
}

// warm begins to warm what stands behind the mark as it stands now.
func (k *taker) warm(ctx context.Context) {
	ctx, k.cold = context.WithCancel(ctx)
	k.warming.Go(func() {
		mark, err := k.marks.Load(ctx, k.record.Partition)
		if errors.Is(err, checkpoint.ErrNoMark) {
			mark, err = checkpoint.Mark{Partition: k.record.Partition}, nil
		}
		if err != nil {
			k.ended <- fmt.Errorf("read the mark: %w", err)
			return
		}
		k.ended <- k.recipient.Warm(ctx, k.record.Partition, mark)
	})
}

// serve serves what the recipient owns, from the mark that it claims: whoever saved before cannot save any more.
func (k *taker) serve(ctx context.Context) error {
	term, err := k.recipient.Adopt(k.record.Partition, k.transfer.epoch)
	if err != nil {
		return fmt.Errorf("adopt the term: %w", err)
	}
	marks, err := k.marks.Claim(ctx, []change.Term{term})
	if err != nil {
		return fmt.Errorf("claim the mark: %w", err)
	}
	if err := k.recipient.Serve(ctx, term, marks[0]); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func (k *taker) over() (<-chan struct{}, error) { return nil, nil }

func (k *taker) warmed() <-chan error { return k.ended }

// rest ends the warming and waits for it.
func (k *taker) rest() {
	k.cold()
	k.warming.Wait()
}
