package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/handoff/ledger"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/lease"
)

// Switch implements [ledger.Switcher]. That it was done already, by an attempt whose answer got lost, is nil too.
func (k *Keeper) Switch(ctx context.Context, r ledger.Record, a ledger.Answer, m checkpoint.Mark) (ledger.Record, error) {
	var switched ledger.Record
	err := k.save(ctx, m)
	for switched.Revision == 0 && err == nil {
		err = etcd.Insist(ctx, func() (err error) {
			switched, err = k.change(ctx, r, a, m)
			return err
		})
	}
	if errors.Is(err, checkpoint.ErrFenced) {
		err = fmt.Errorf("%w: %w", ledger.ErrStale, err)
	}
	if err != nil {
		return ledger.Record{}, fmt.Errorf("switch partition %d: %w", r.Partition, etcd.Named(err))
	}
	return switched, nil
}

// save saves the mark first where marks are kept elsewhere. A mark without a position is none.
func (k *Keeper) save(ctx context.Context, m checkpoint.Mark) error {
	if k.beside != nil || m.Position.IsZero() {
		return nil
	}
	if err := k.marks.Save(ctx, []checkpoint.Mark{m})[0]; err != nil {
		return fmt.Errorf("save the mark: %w", err)
	}
	return nil
}

// change makes one attempt at the transaction. Without an error and a revision something was written meanwhile.
func (k *Keeper) change(ctx context.Context, r ledger.Record, a ledger.Answer, m checkpoint.Mark) (ledger.Record, error) {
	var mark []clientv3.Op
	if k.beside != nil {
		mark = append(mark, k.beside.ReadMark(r.Partition))
	}
	s, err := k.read(ctx, r.Partition, mark...)
	switch {
	case err != nil:
		return ledger.Record{}, err
	case s.Record.Same(r) && s.Record.Phase == ledger.Switched:
		return s.Record, nil
	case s.Record.Revision != r.Revision, s.Answer.Revision != a.Revision, !s.Ready():
		return ledger.Record{}, fmt.Errorf("the record or its answer is another: %w", ledger.ErrStale)
	case !s.owns(r.From, r.Epoch) || m.Epoch != r.Epoch:
		return ledger.Record{}, fmt.Errorf("owned by %q at epoch %s: %w", s.Owner.Node, s.Owner.Epoch, ledger.ErrStale)
	}
	owner, err := lease.Encode(r.To.Node, r.To.Process, time.Now())
	if err != nil {
		return ledger.Record{}, err
	}
	r.Phase = ledger.Switched
	value, err := encodeRecord(r)
	if err != nil {
		return ledger.Record{}, err
	}
	expected := []clientv3.Cmp{
		k.client.Is(s.stands), modified(s.ownerKey, s.owner.Revision), modified(s.recordKey, r.Revision), modified(s.reply, a.Revision),
	}
	puts := []clientv3.Op{
		clientv3.OpPut(s.ownerKey, owner, clientv3.WithLease(s.answerLease)),
		clientv3.OpPut(s.recordKey, value, clientv3.WithLease(s.recordLease)),
	}
	var beside etcd.Beside
	if k.beside != nil {
		if beside, err = k.beside.Beside(m, s.more); err != nil {
			return ledger.Record{}, err
		}
		expected, puts = append(expected, beside.If), append(puts, beside.Puts...)
	}
	resp, err := k.etcd.Txn(ctx).If(expected...).Then(puts...).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return ledger.Record{}, fmt.Errorf("a lease has ended: %w", ledger.ErrStale)
	case err != nil || !resp.Succeeded:
		return ledger.Record{}, err
	}
	if k.beside != nil {
		beside.Wrote(resp.Header.Revision)
	}
	r.Revision = resp.Header.Revision
	return r, nil
}

// Close implements [ledger.Switcher]. The answer goes with the record.
func (k *Keeper) Close(ctx context.Context, r ledger.Record) error {
	key := k.keys.Handoff(r.Partition)
	var resp *clientv3.TxnResponse
	err := etcd.Insist(ctx, func() (err error) {
		resp, err = k.etcd.Txn(ctx).
			If(modified(key, r.Revision)).
			Then(clientv3.OpDelete(key), clientv3.OpDelete(k.answer(r.Partition))).
			Else(clientv3.OpGet(key, clientv3.WithCountOnly())).
			Commit()
		return err
	})
	if err == nil && !resp.Succeeded && resp.Responses[0].GetResponseRange().Count > 0 {
		err = ledger.ErrStale
	}
	if err != nil {
		return fmt.Errorf("close the handoff of partition %d: %w", r.Partition, etcd.Named(err))
	}
	return nil
}
