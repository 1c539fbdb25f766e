package kafka

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/sink"
)

// A Transactional publishes in transactions, in order for each partition.
type Transactional struct {
	sink.Serial
	plain *Target // for losses, which belong to no partition

	mu        sync.Mutex
	producers map[change.Partition]*producer
}

var _ sink.Target = (*Transactional)(nil)

const (
	// batch bounds the messages of a transaction, parallel the transactions under way.
	batch    = 4096
	parallel = 64
)

func newTransactional(plain *Target) *Transactional {
	t := &Transactional{plain: plain, producers: make(map[change.Partition]*producer)}
	t.Serial = sink.Serial{Send: t.send, Batch: batch, Parallel: parallel}
	return t
}

// A producer publishes one partition under one term.
type producer struct {
	epoch   change.Epoch
	client  *kgo.Client
	records *recordMaker
	id      string     // of its transactions, and of the group of its position
	count   int64      // of the transactions of the partition
	last    change.Ref // the position in the last one, of which nothing is known to be later
	topic   string     // one that exists, empty until it has published
	kept    string     // the topic at which the position was found, empty without one
}

// Publish implements sink.Target.
func (t *Transactional) Publish(ctx context.Context, m *sink.Message) {
	if m.Op != sink.OpLoss {
		t.Serial.Publish(ctx, m)
		return
	}
	if err := t.rewindAll(ctx, m.Rewound); err != nil { // nothing is under way
		m.Done(judge(err, ""))
		return
	}
	t.plain.Publish(ctx, m)
}

// rewindAll rewinds partitions.
func (t *Transactional) rewindAll(ctx context.Context, partitions []change.Partition) error {
	ctx, cancel := context.WithTimeout(ctx, t.plain.cfg.Timeout)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, p := range partitions {
		g.Go(func() error { return t.rewind(ctx, p) })
	}
	return g.Wait()
}

// rewind makes the position of a partition earlier than everything, because an operator wants what was published before. Kafka has it before the
// loss is reported done: the next owner is told of no rewind if this one publishes nothing more. What fails is done again as a whole.
func (t *Transactional) rewind(ctx context.Context, partition change.Partition) error {
	t.forget(partition) // it is fenced by this one
	p, err := t.open(ctx, partition)
	if err != nil {
		return err
	}
	defer p.client.Close()
	if p.last.IsZero() {
		return nil
	}
	if err := p.commit(ctx, p.kept, change.Ref{}); err != nil {
		return fmt.Errorf("rewind partition %d: %w", partition, err)
	}
	if err := p.end(ctx); err != nil {
		return fmt.Errorf("rewind partition %d: %w", partition, err)
	}
	return nil
}

// Close implements sink.Target.
func (t *Transactional) Close() {
	t.Serial.Close()
	t.plain.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.producers {
		p.client.Close()
	}
}

// send publishes messages of a partition in one transaction.
func (t *Transactional) send(ctx context.Context, messages []*sink.Message) (n int, err error) {
	first := messages[0]
	for i, m := range messages { // a batch may contain messages of two terms
		if m.Epoch != first.Epoch {
			messages = messages[:i]
			break
		}
	}
	ctx, cancel := context.WithTimeout(ctx, t.plain.cfg.Timeout)
	defer cancel()
	p, err := t.producer(ctx, first)
	if err == nil {
		var grown bool
		if messages, grown, err = t.fitting(ctx, p, messages); grown {
			t.forget(first.Partition) // a client asks for the limit of a topic once
			p, err = t.producer(ctx, first)
		}
	}
	if err == nil {
		if fresh := p.fresh(messages); len(fresh) > 0 {
			err = p.publish(ctx, fresh)
		}
	}
	if err != nil { // the next attempt begins with a new producer, which finds out how far this one has come
		t.forget(first.Partition)
		return 0, judge(err, "")
	}
	return len(messages), nil
}

// fitting returns the messages before the first that its topic does not take. The error is that of
// the first of all. grown says that a topic takes more than the producer knows.
func (t *Transactional) fitting(ctx context.Context, p *producer, messages []*sink.Message) (_ []*sink.Message, grown bool, err error) {
	for i, m := range messages {
		more, err := t.plain.topics.check(ctx, p.client, p.records.topics.Of(m), len(m.Key)+len(m.Value))
		if err != nil && i == 0 {
			return nil, grown, err
		}
		if err != nil {
			return messages[:i], grown, nil
		}
		grown = grown || more
	}
	return messages, grown, nil
}

// producer returns the producer of a message's partition and term.
func (t *Transactional) producer(ctx context.Context, m *sink.Message) (*producer, error) {
	t.mu.Lock()
	p := t.producers[m.Partition]
	t.mu.Unlock()
	if p != nil && p.epoch == m.Epoch {
		return p, nil
	}
	t.forget(m.Partition)
	p, err := t.open(ctx, m.Partition)
	if err != nil {
		return nil, err
	}
	p.epoch = m.Epoch
	t.mu.Lock()
	defer t.mu.Unlock()
	t.producers[m.Partition] = p
	return p, nil
}

// open makes a producer of a partition, which fences all before it and knows the position.
func (t *Transactional) open(ctx context.Context, partition change.Partition) (*producer, error) {
	id := fmt.Sprintf("%s.%d", t.plain.cfg.ID, partition)
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.TxnOffsetCommit.Int16(), 5) // later ones know topics by their ids, which the producer does not tell
	client, err := kgo.NewClient(append(t.plain.cfg.options(), kgo.MaxVersions(versions),
		kgo.TransactionalID(id), kgo.TransactionTimeout(t.plain.cfg.Timeout), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytesFn(t.plain.topics.max))...)
	if err != nil {
		return nil, fmt.Errorf("make Kafka client: %w", err)
	}
	p := &producer{client: client, records: t.plain.newRecordMaker(), id: id}
	if _, _, err = client.ProducerID(ctx); err == nil { // nobody else can publish from here on
		err = p.load(ctx)
	}
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("begin to publish partition %d: %w", partition, err)
	}
	return p, nil
}

// forget closes the producer of a partition.
func (t *Transactional) forget(partition change.Partition) {
	t.mu.Lock()
	p := t.producers[partition]
	delete(t.producers, partition)
	t.mu.Unlock()
	if p != nil {
		p.client.Close()
	}
}

// load reads the position of the last transaction.
func (p *producer) load(ctx context.Context) error {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = p.id
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, p.client)
	if err != nil {
		return fmt.Errorf("read the position: %w", err)
	}
	for _, g := range resp.Groups {
		if g.ErrorCode == kerr.GroupIDNotFound.Code {
			return nil // nothing was published yet
		}
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return fmt.Errorf("read the position: %w", err)
		}
		for _, topic := range g.Topics {
			for _, partition := range topic.Partitions {
				if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
					return fmt.Errorf("read the position: %w", err)
				}
				if partition.Offset <= p.count || partition.Metadata == nil {
					continue
				}
				raw, err := hex.DecodeString(*partition.Metadata)
				if err != nil {
					return fmt.Errorf("read the position: %w", err)
				}
				ref, err := change.ParseRef(raw)
				if err != nil {
					return fmt.Errorf("read the position: %w", err)
				}
				p.count, p.last, p.kept = partition.Offset, ref, topic.Topic
			}
		}
	}
	return nil
}

// fresh returns the messages after the last position. Those of one head, whose order only the log knows, count as earlier if that position is
// among them.
func (p *producer) fresh(messages []*sink.Message) []*sink.Message {
	if p.last.IsZero() {
		return messages
	}
	last := p.last
	at := slices.IndexFunc(messages, func(m *sink.Message) bool { return !m.Snapshot && m.Ref == last })
	var fresh []*sink.Message
	for i, m := range messages {
		switch {
		case m.Snapshot:
		case i <= at, m.Ref.Compare(last) < 0 && !p.last.IsZero():
			continue
		default:
			p.last = change.Ref{} // what follows is later
		}
		fresh = append(fresh, m)
	}
	if at >= 0 {
		p.last = change.Ref{}
	}
	return fresh
}

// publish publishes messages and the position of the last one in a transaction, both at once where it is known that a topic exists.
func (p *producer) publish(ctx context.Context, messages []*sink.Message) error {
	if err := p.client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	records := make([]*kgo.Record, 0, len(messages))
	var last *sink.Message
	for _, m := range messages {
		record, tombstone := p.records.of(m)
		if records = append(records, record); tombstone != nil {
			records = append(records, tombstone)
		}
		if !m.Snapshot {
			last = m
		}
	}
	at, position := p.topic, make(chan error, 1)
	together := last != nil && at != ""
	if together {
		go func() { position <- p.commit(ctx, at, last.Ref) }()
	}
	var err error
	for _, r := range p.client.ProduceSync(ctx, records...) {
		if r.Err != nil && err == nil {
			err = fmt.Errorf("publish to topic %s: %w", r.Record.Topic, r.Err)
		}
	}
	if err != nil {
	} else {
		p.topic = records[0].Topic
	}
	switch {
	case together:
		err = cmp.Or(err, <-position)
	case last != nil && err == nil:
		err = p.commit(ctx, p.topic, last.Ref)
	}
	if err != nil {
		return err
	}
	if err := p.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	return nil
}

// commit makes the position part of the transaction. The topic only has to exist; a group may have positions at several, of which the one of
// the highest number counts.
func (p *producer) commit(ctx context.Context, topic string, at change.Ref) error {
	id, epoch, err := p.client.ProducerID(ctx)
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = p.id, id, epoch, p.id
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		added, err := add.RequestWith(ctx, p.client)
		if err != nil {
			return fmt.Errorf("add group: %w", err)
		}
		err = kerr.ErrorForCode(added.ErrorCode)
		if err == nil {
			break
		}
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			return fmt.Errorf("add group: %w", err)
		}
		if err := retry.Sleep(ctx, wait); err != nil {
			return err
		}
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.id, id, epoch, p.id
	entry, offset := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
	metadata := hex.EncodeToString(at.Append(nil))
	entry.Topic, offset.Offset, offset.Metadata = topic, p.count+1, &metadata
	entry.Partitions = append(entry.Partitions, offset)
	req.Topics = append(req.Topics, entry)
	resp, err := req.RequestWith(ctx, p.client)
	if err != nil {
		return fmt.Errorf("commit offset: %w", err)
	}
	for _, topic := range resp.Topics {
		for _, partition := range topic.Partitions {
			if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
				return fmt.Errorf("commit offset: %w", err)
			}
		}
	}
	p.count++
	return nil
}

// end commits a transaction that has a position only, of which the client does not know.
func (p *producer) end(ctx context.Context) error {
	id, epoch, err := p.client.ProducerID(ctx)
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, id, epoch, true
	resp, err := req.RequestWith(ctx, p.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	return nil
}
