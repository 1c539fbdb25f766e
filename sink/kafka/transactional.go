package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/sink"
)

// A Transactional publishes in transactions, in order for each partition.
type Transactional struct {
	sink.Serial
	plain *Target // for losses, which do not belong to a partition

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
	gate    *sink.Gate
	id      string        // of its transactions, and of the group of its position
	count   int64         // of the transactions of the partition
	last    sink.Position // in the last one
	topic   string        // an existing topic, empty until it has published
}

// Publish implements sink.Target.
func (t *Transactional) Publish(ctx context.Context, m *sink.Message) {
	if m.Op == sink.OpLoss {
		t.plain.Publish(ctx, m)
		return
	}
	t.Serial.Publish(ctx, m)
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

// send publishes messages of a partition in one transaction. If Kafka refuses that, the cause may
// be one of them: it publishes them by halves, up to the one that is refused alone.
func (t *Transactional) send(ctx context.Context, messages []*sink.Message) (n int, err error) {
	n, err = t.sendTogether(ctx, messages)
	refused, is := errors.AsType[*sink.RefusedError](err)
	if !is || !refused.Among || len(messages) == 1 {
		return n, err
	}
	half := len(messages) / 2
	if n, err = t.send(ctx, messages[:half]); err != nil || n < half {
		return n, err
	}
	more, err := t.send(ctx, messages[half:])
	return n + more, err
}

// sendTogether publishes messages in one transaction, or the first of them.
func (t *Transactional) sendTogether(ctx context.Context, messages []*sink.Message) (n int, err error) {
	first := messages[0]
	for i, m := range messages { // a batch may contain messages of two terms
		if m.Epoch != first.Epoch {
			messages = messages[:i]
			break
		}
	}
	timeout := t.plain.cfg.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no outcome within %s", timeout))
	defer cancel()
	p, err := t.producer(ctx, first)
	if err == nil {
		var changed bool
		if messages, changed, err = t.fitting(ctx, p, messages); changed {
			t.forget(first.Partition) // a client asks for the limit of a topic once
			p, err = t.producer(ctx, first)
		}
	}
	if err == nil {
		fresh := slices.DeleteFunc(slices.Clone(messages), p.last.Has)
		if len(fresh) > 0 {
			err = p.publish(ctx, fresh)
		}
	}
	if err != nil { // the next attempt uses a new producer, which reads how far this one got
		t.forget(first.Partition)
		err = judge(err, t.topicsOf(messages))
		for _, m := range messages {
			t.plain.topics.refused(err, t.plain.topic.Name(m))
		}
		return 0, err
	}
	return len(messages), nil
}

// topicsOf returns the topics of messages of a transaction as text: Kafka does not say which of
// them it has refused.
func (t *Transactional) topicsOf(messages []*sink.Message) string {
	var names []string
	for _, m := range messages {
		if name := t.plain.topic.Name(m); len(names) <= maxNamed && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > maxNamed {
		names[maxNamed] = "…"
	}
	return strings.Join(names, ", ")
}

// maxNamed bounds the topics that an error names.
const maxNamed = 4

// fitting returns the messages before the first one that its topic refuses. The error is that of
// the very first message. changed says that a topic's limit is another than the producer knows.
func (t *Transactional) fitting(ctx context.Context, p *producer, messages []*sink.Message) (_ []*sink.Message, changed bool, err error) {
	for i, m := range messages {
		more, err := t.plain.topics.check(ctx, p.client, p.records.topics.Of(m), len(m.Key)+len(m.Value))
		if err != nil && i == 0 {
			return nil, changed, err
		}
		if err != nil {
			return messages[:i], changed, nil
		}
		changed = changed || more
	}
	return messages, changed, nil
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
	if p.last.Epoch.Compare(m.Epoch) > 0 {
		p.client.Close()
		return nil, fmt.Errorf("%w: a later owner has published", sink.ErrReplaced)
	}
	p.epoch = m.Epoch
	t.mu.Lock()
	defer t.mu.Unlock()
	t.producers[m.Partition] = p
	return p, nil
}

// open makes a producer of a partition, which fences all earlier ones and knows the position.
func (t *Transactional) open(ctx context.Context, partition change.Partition) (*producer, error) {
	id := fmt.Sprintf("%s.%d", t.plain.cfg.ID, partition)
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.TxnOffsetCommit.Int16(), 5) // later ones identify topics by ids, which the producer does not expose
	gate := &sink.Gate{}
	client, err := kgo.NewClient(append(t.plain.cfg.options(gate), kgo.MaxVersions(versions),
		kgo.TransactionalID(id), kgo.TransactionTimeout(t.plain.cfg.Timeout), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytesFn(t.plain.topics.max))...)
	if err != nil {
		return nil, fmt.Errorf("make Kafka client: %w", err)
	}
	gate.Shut = client.Close
	p := &producer{client: client, gate: gate, records: t.plain.newRecordMaker(), id: id}
	if _, _, err = client.ProducerID(ctx); err == nil { // no other process can publish from here on
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
				last, err := sink.ParsePosition(*partition.Metadata)
				if err != nil {
					return fmt.Errorf("read the position: %w", err)
				}
				p.count = partition.Offset
				p.last = last
			}
		}
	}
	return nil
}

// publish publishes messages and the position of the last one in a transaction, concurrently if a
// topic is known to exist. It ends with the context, even if a broker holds the records: the next
// producer aborts the transaction.
func (p *producer) publish(ctx context.Context, messages []*sink.Message) error {
	defer context.AfterFunc(ctx, p.client.Close)()
	if err := p.client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	records := make([]*kgo.Record, 0, len(messages))
	parcels := make([]*parcel, 0, len(messages))
	last := p.last
	for i, m := range messages {
		if i == 0 || !m.SharesTerm(messages[i-1]) { // once is enough: they are under way together
			if err := p.gate.Enter(m); err != nil {
				return err
			}
			defer p.gate.Leave(m)
		}
		made := p.records.of(m)
		parcels = append(parcels, made)
		if records = append(records, &made.record); made.tombstone != nil {
			records = append(records, made.tombstone)
		}
		last = last.With(m)
	}
	at := p.topic
	position := make(chan error, 1)
	together := at != ""
	if together {
		go func() { position <- p.commit(ctx, at, last) }()
	}
	var err error
	for _, r := range p.client.ProduceSync(ctx, records...) {
		if r.Err != nil && err == nil {
			err = fmt.Errorf("publish to topic %s: %w", r.Record.Topic, r.Err)
		}
	}
	if err == nil {
		p.topic = records[0].Topic
	}
	switch {
	case together:
		err = cmp.Or(err, <-position)
	case err == nil:
		err = p.commit(ctx, p.topic, last)
	}
	if err == nil {
		if err = p.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
			err = fmt.Errorf("commit transaction: %w", err)
		}
	}
	switch shut := p.gate.Err(); {
	case err == nil:
		p.last = last
		for _, done := range parcels {
			p.records.target.recycle(done)
		}
	case shut != nil:
		return shut
	case ctx.Err() != nil: // the client is closed
		return context.Cause(ctx)
	}
	return err
}

// commit makes the position part of the transaction. The topic only has to exist. A group may have
// positions at several topics; the one with the highest number counts.
func (p *producer) commit(ctx context.Context, topic string, at sink.Position) error {
	id, epoch, err := p.client.ProducerID(ctx)
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID = p.id
	add.ProducerID = id
	add.ProducerEpoch = epoch
	add.Group = p.id
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
	req.TransactionalID = p.id
	req.ProducerID = id
	req.ProducerEpoch = epoch
	req.Group = p.id
	entry, offset := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
	metadata := string(at.AppendText(nil))
	entry.Topic = topic
	offset.Offset = p.count + 1
	offset.Metadata = &metadata
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
