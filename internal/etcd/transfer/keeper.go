package transfer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/handoff/ledger"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/lease"
)

// A Keeper keeps the ledger of the client's cluster. An origin must have been founded before.
type Keeper struct {
	client     *etcd.Client
	etcd       *clientv3.Client
	keys       etcd.Keys
	partitions int
	marks      checkpoint.Store
	beside     *etcd.Store // nil where the marks are kept elsewhere
}

var (
	_ ledger.Keeper   = (*Keeper)(nil)
	_ ledger.Switcher = (*Keeper)(nil)
	_ ledger.Answerer = (*Keeper)(nil)
)

// New makes a Keeper for a cluster of so many partitions. Marks are where the donors' marks are saved: the client's own store, or another
// one. Who switches nothing needs none.
func New(client *etcd.Client, partitions int, marks checkpoint.Store) *Keeper {
	beside, _ := marks.(*etcd.Store)
	return &Keeper{client: client, etcd: client.Driver(), keys: client.Keys(), partitions: partitions, marks: marks, beside: beside}
}

// answer is the key of the answer to a partition's record.
func (k *Keeper) answer(p change.Partition) string { return k.keys.Handoff(p) + "/answer" }

// A state is everything of a partition at one revision.
type state struct {
	ledger.Sight

	stands                     etcd.Standing
	owner                      lease.Holder
	recordLease, answerLease   clientv3.LeaseID
	more                       []*mvccpb.KeyValue // what was to be got with it
	ownerKey, recordKey, reply string
}

// read reads a partition, and with it what else is to be got.
func (k *Keeper) read(ctx context.Context, p change.Partition, more ...clientv3.Op) (s state, err error) {
	s.ownerKey, s.recordKey, s.reply = k.keys.Owner(p), k.keys.Handoff(p), k.answer(p)
	ops := []clientv3.Op{
		clientv3.OpGet(k.keys.Origin()), clientv3.OpGet(s.ownerKey), clientv3.OpGet(s.recordKey), clientv3.OpGet(s.reply),
	}
	resp, err := k.etcd.Txn(ctx).Then(append(ops, more...)...).Commit()
	if err != nil {
		return s, err
	}
	kvs := func(i int) []*mvccpb.KeyValue { return resp.Responses[i].GetResponseRange().Kvs }
	if s.stands, err = etcd.StandingOf(kvs(0), k.partitions); err != nil {
		return s, err
	}
	if found := kvs(1); len(found) > 0 {
		s.owner = lease.Of(found[0])
		s.Owner = roster.Owner{
			Node: s.owner.Node, Process: s.owner.Process,
			Epoch: change.Epoch{Incarnation: s.stands.Incarnation, Revision: uint64(s.owner.Revision)},
		}
	}
	if found := kvs(2); len(found) > 0 {
		s.recordLease = clientv3.LeaseID(found[0].Lease)
		if s.Record, err = decodeRecord(p, found[0]); err != nil {
			return s, err
		}
	}
	if found := kvs(3); len(found) > 0 {
		s.answerLease = clientv3.LeaseID(found[0].Lease)
		if s.Answer, err = decodeAnswer(found[0]); err != nil {
			return s, err
		}
	}
	if len(more) > 0 {
		s.more = kvs(4)
	}
	return s, nil
}

// owns reports whether a party owns the partition at the epoch.
func (s state) owns(p ledger.Party, e change.Epoch) bool {
	return s.Owner.Epoch == e && s.owner.Process == p.Process && s.owner.Lease != clientv3.NoLease
}

func modified(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// Look implements [ledger.Keeper].
func (k *Keeper) Look(ctx context.Context, p change.Partition) (ledger.Sight, error) {
	s, err := k.read(ctx, p)
	if err == nil && s.Record.Revision != 0 {
		s.Absent, err = k.absent(ctx, s.Record.To)
	}
	if err != nil {
		return ledger.Sight{}, fmt.Errorf("look at the handoff of partition %d: %w", p, etcd.Named(err))
	}
	return s.Sight, nil
}

// absent reports whether a party is no member.
func (k *Keeper) absent(ctx context.Context, who ledger.Party) (bool, error) {
	resp, err := k.etcd.Get(ctx, k.keys.Member(who.Node))
	if err != nil {
		return false, err
	}
	return len(resp.Kvs) == 0 || lease.Of(resp.Kvs[0]).Process != who.Process, nil
}

// List implements [ledger.Keeper]. A record that cannot be read is left out: its partition's Look tells.
func (k *Keeper) List(ctx context.Context) ([]ledger.Record, error) {
	resp, err := k.etcd.Get(ctx, k.keys.Handoffs(), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list handoffs: %w", etcd.Named(err))
	}
	var records []ledger.Record
	for _, kv := range resp.Kvs {
		if strings.Contains(strings.TrimPrefix(string(kv.Key), k.keys.Handoffs()), "/") {
			continue
		}
		p, err := etcd.PartitionOf(k.keys.Handoffs(), string(kv.Key))
		if err != nil {
			continue
		}
		if r, err := decodeRecord(p, kv); err == nil {
			records = append(records, r)
		}
	}
	return records, nil
}

// Prepare implements [ledger.Keeper]. The record stands under the lease of the owner key.
func (k *Keeper) Prepare(ctx context.Context, r ledger.Record) (prepared ledger.Record, err error) {
	r.Phase = ledger.Prepared
	value, err := encodeRecord(r)
	if err != nil {
		return ledger.Record{}, err
	}
	for prepared.Revision == 0 && err == nil {
		err = etcd.Insist(ctx, func() error {
			prepared, err = k.prepare(ctx, r, value)
			return err
		})
	}
	if err != nil {
		return ledger.Record{}, fmt.Errorf("prepare the handoff of partition %d: %w", r.Partition, etcd.Named(err))
	}
	return prepared, nil
}

// prepare makes one attempt. Without an error and a revision somebody else was faster, at whatever.
func (k *Keeper) prepare(ctx context.Context, r ledger.Record, value string) (ledger.Record, error) {
	s, err := k.read(ctx, r.Partition)
	switch {
	case err != nil:
		return ledger.Record{}, err
	case s.Record.Same(r):
		return s.Record, nil
	case s.Record.Revision != 0:
		return ledger.Record{}, fmt.Errorf("from %q to %q, asked for by %q: %w", s.Record.From.Node, s.Record.To.Node, s.Record.By, ledger.ErrMoving)
	case !s.owns(r.From, r.Epoch):
		return ledger.Record{}, fmt.Errorf("owned by %q at epoch %s: %w", s.Owner.Node, s.Owner.Epoch, ledger.ErrStale)
	}
	resp, err := k.etcd.Txn(ctx).
		If(k.client.Is(s.stands), modified(s.ownerKey, s.owner.Revision), modified(s.recordKey, 0)).
		Then(clientv3.OpDelete(s.reply), clientv3.OpPut(s.recordKey, value, clientv3.WithLease(s.owner.Lease))).
		Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return ledger.Record{}, fmt.Errorf("the owner's lease has ended: %w", ledger.ErrStale)
	case err != nil || !resp.Succeeded:
		return ledger.Record{}, err
	}
	r.Revision = resp.Header.Revision
	return r, nil
}

// Answer implements [ledger.Answerer]. The answer stands under the lease of the recipient's heartbeat.
func (k *Keeper) Answer(ctx context.Context, r ledger.Record, refusal string) error {
	if err := etcd.Insist(ctx, func() error { return k.reply(ctx, r, refusal) }); err != nil {
		return fmt.Errorf("answer to the handoff of partition %d: %w", r.Partition, etcd.Named(err))
	}
	return nil
}

func (k *Keeper) reply(ctx context.Context, r ledger.Record, refusal string) error {
	value, err := encodeAnswer(r.Revision, refusal)
	if err != nil {
		return err
	}
	seat := k.keys.Member(r.To.Node)
	s, err := k.read(ctx, r.Partition, clientv3.OpGet(seat))
	if err != nil {
		return err
	}
	if s.Record.Revision != r.Revision {
		return ledger.ErrStale
	}
	if len(s.more) == 0 || lease.Of(s.more[0]).Process != r.To.Process {
		return fmt.Errorf("the membership of node %q is gone: %w", r.To.Node, ledger.ErrStale)
	}
	under := clientv3.LeaseID(s.more[0].Lease)
	resp, err := k.etcd.Txn(ctx).
		If(modified(s.recordKey, r.Revision), clientv3.Compare(clientv3.LeaseValue(seat), "=", under)).
		Then(clientv3.OpPut(s.reply, value, clientv3.WithLease(under))).
		Commit()
	if errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && !resp.Succeeded {
		return ledger.ErrStale
	}
	return err
}
