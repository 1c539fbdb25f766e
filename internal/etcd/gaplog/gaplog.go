package gaplog

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/record"
)

// A Log keeps entries under one prefix.
type Log struct {
	etcd       *clientv3.Client
	prefix     string
	partitions int
	insist     func(context.Context, func() error) error
	named      func(error) error
}

var _ checkpoint.GapKeeper = (*Log)(nil)

// New makes the log whose keys begin with a prefix, of a cluster of so many partitions. Insist does what can be done more than once until it
// is known whether it was done; named gives errors of etcd their codes.
func New(etcd *clientv3.Client, prefix string, partitions int, insist func(context.Context, func() error) error, named func(error) error) *Log {
	return &Log{etcd: etcd, prefix: prefix, partitions: partitions, insist: insist, named: named}
}

// AddGap implements [checkpoint.GapKeeper].
func (l *Log) AddGap(ctx context.Context, g checkpoint.Gap) error {
	g = g.Trimmed()
	for {
		var count int64
		added := false
		err := l.insist(ctx, func() (err error) {
			added, count, err = l.addGap(ctx, g)
			return err
		})
		if err != nil {
			return fmt.Errorf("write the gap log: %w", l.named(err))
		}
		if !added {
			continue // somebody else wrote the entry meanwhile
		}
		if count > checkpoint.MaxGaps {
			return l.dropGaps(ctx)
		}
		return nil
	}
}

// addGap makes one attempt, and returns how many entries there are now.
func (l *Log) addGap(ctx context.Context, g checkpoint.Gap) (added bool, count int64, err error) {
	key := l.prefix + g.ID()
	resp, err := l.etcd.Get(ctx, key)
	if err != nil {
		return false, 0, err
	}
	var revision int64
	if len(resp.Kvs) > 0 {
		known, err := record.DecodeGap(key, l.partitions, resp.Kvs[0].Value)
		if err != nil {
			return false, 0, err
		}
		g, revision = known.Again(g), resp.Kvs[0].ModRevision
	}
	value, err := record.EncodeGap(g, l.partitions)
	if err != nil {
		return false, 0, err
	}
	if revision != 0 && string(value) == string(resp.Kvs[0].Value) {
		return true, 0, nil
	}
	txn, err := l.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(value)), clientv3.OpGet(l.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())).
		Commit()
	if err != nil || !txn.Succeeded {
		return false, 0, err
	}
	return true, txn.Responses[1].GetResponseRange().Count, nil
}

// Gaps implements [checkpoint.GapKeeper].
func (l *Log) Gaps(ctx context.Context) ([]checkpoint.Gap, error) {
	resp, err := l.etcd.Get(ctx, l.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read the gap log: %w", l.named(err))
	}
	return l.decodeGaps(resp.Kvs)
}

func (l *Log) decodeGaps(kvs []*mvccpb.KeyValue) ([]checkpoint.Gap, error) {
	gaps := make([]checkpoint.Gap, 0, len(kvs))
	var unread []error
	for _, kv := range kvs {
		g, err := record.DecodeGap(string(kv.Key), l.partitions, kv.Value)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		gaps = append(gaps, g)
	}
	checkpoint.SortGaps(gaps)
	return gaps, errors.Join(unread...)
}

// dropGaps deletes the oldest entries as far as there are too many.
func (l *Log) dropGaps(ctx context.Context) error {
	resp, err := l.etcd.Get(ctx, l.prefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("read the gap log: %w", l.named(err))
	}
	gaps, _ := l.decodeGaps(resp.Kvs) // one that cannot be read stays, and counts
	for _, g := range gaps[:min(len(gaps), max(0, len(resp.Kvs)-checkpoint.MaxGaps))] {
		err := l.insist(ctx, func() error {
			_, err := l.etcd.Delete(ctx, l.prefix+g.ID())
			return err
		})
		if err != nil {
			return fmt.Errorf("drop from the gap log: %w", l.named(err))
		}
	}
	return nil
}
