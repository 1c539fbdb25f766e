package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/sink"
)

// Config configures a Target.
type Config struct {
	// Brokers are host:port of some brokers. Required.
	Brokers []string
	// Topic is a template. Losses is the topic of losses. Required.
	Topic, Losses string
	// Transactional publishes in transactions that hold the position. ID is the prefix of the ids
	// of its producers and groups; the partition follows. It contains everything that gives a
	// partition its meaning: the cluster, the sink and the number of partitions. It is required
	// then.
	Transactional bool
	ID            string
	// Reserved are topics with another use, such as that of dead letters.
	Reserved []string
	// Create lets brokers create missing topics.
	Create bool
	// Compression is none, gzip, snappy, lz4 or zstd. Defaults to lz4.
	Compression string
	// Tombstones adds a message without a value after each delete, for compacted topics.
	Tombstones bool
	// Mechanism is plain, scram-sha-256 or scram-sha-512 with User and Password; empty means no
	// login.
	Mechanism, User, Password string
	// TLS is the TLS configuration, nil for none.
	TLS *tls.Config
	// MaxMessageBytes bounds a batch of records before compression, instead of the limit that Kafka
	// reports for each topic; 0 uses Kafka's limit.
	MaxMessageBytes int
	// Timeout is the time after which a message has failed. Defaults to 30 s.
	Timeout time.Duration
	// Format is the format of the values.
	Format sink.Format
	// OneDatabase and OneCollection say that all changes are of one database or collection.
	// Otherwise keys contain them unless the topic does.
	OneDatabase, OneCollection bool
	// Namespaces are the collections that are known to be published, for Check.
	Namespaces []change.Namespace
}

// A Target publishes to Kafka without transactions.
type Target struct {
	cfg     Config
	topic   *sink.Template
	names   *sink.Names
	client  *kgo.Client // nil until the first message, and after the gate was shut
	gate    *sink.Gate
	records *recordMaker
	topics  *topics
	spare   sync.Pool // of *parcel
}

var _ sink.Target = (*Target)(nil)

// New returns a Target, which connects at its first use: one with transactions if the Config
// requires them.
func New(cfg Config) (sink.Target, error) {
	cfg.Compression, cfg.Timeout = cmp.Or(cfg.Compression, "lz4"), cmp.Or(cfg.Timeout, 30*time.Second)
	topic, err := sink.ParseTemplate(cfg.Topic, sink.Limits{Legal: Legal, Longest: longestTopic, Reserved: append([]string{cfg.Losses}, cfg.Reserved...)})
	if err != nil {
		return nil, err
	}
	t := &Target{cfg: cfg, topic: topic, names: sink.NewNames(topic)}
	t.topics = &topics{cfg: &t.cfg, of: make(map[string]topicState)}
	if cfg.Transactional {
		return newTransactional(t), nil
	}
	return t, nil
}

// longestTopic is the longest name of a topic (Kafka, org.apache.kafka.common.internals.Topic).
const longestTopic = 249

// Legal replaces characters that the name of a topic must not contain.
func Legal(s string) string {
	return strings.Map(func(r rune) rune {
		isLetter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		isDigit := '0' <= r && r <= '9'
		if isLetter || isDigit || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, s)
}

// options returns the options of a client that writes through a gate.
func (c Config) options(gate *sink.Gate) []kgo.Opt {
	codec := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[c.Compression]
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.ClientID("streamer"), kgo.ProducerBatchCompression(codec), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxBufferedRecords(maxBuffered), kgo.ProducerLinger(linger), kgo.RecordDeliveryTimeout(c.Timeout),
		kgo.ProduceRequestTimeout(c.patience()), kgo.RequestTimeoutOverhead(c.patience()),
	}
	if c.Create {
		options = append(options, kgo.AllowAutoTopicCreation())
	}
	options = append(options, kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return gate.Conn(conn), nil
	}))
	var login sasl.Mechanism
	switch c.Mechanism {
	case "plain":
		login = plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()
	case "scram-sha-256":
		login = scram.Auth{User: c.User, Pass: c.Password}.AsSha256Mechanism()
	case "scram-sha-512":
		login = scram.Auth{User: c.User, Pass: c.Password}.AsSha512Mechanism()
	}
	if login != nil {
		options = append(options, kgo.SASL(login))
	}
	return options
}

// patience is how long a broker may take for a request. It may take twice as long for records, so
// that they are sent to another broker before they have failed.
func (c Config) patience() time.Duration { return min(c.Timeout/4, longestPatience) }

// dial connects to a broker.
func (c Config) dial(ctx context.Context, network, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: dialTimeout}
	if c.TLS == nil {
		return plain.DialContext(ctx, network, address) //nolint:wrapcheck // the client names the broker
	}
	return (&tls.Dialer{NetDialer: plain, Config: c.TLS}).DialContext(ctx, network, address) //nolint:wrapcheck // likewise
}

const (
	// dialTimeout bounds an attempt to connect.
	dialTimeout = 10 * time.Second
	// longestPatience is the client's own default.
	longestPatience = 10 * time.Second
	// maxBuffered bounds the records under way; the credit of the session bounds them, too.
	maxBuffered = 64 << 10
	// linger is how long a record waits for others.
	linger = 2 * time.Millisecond
)

// Publish implements sink.Target.
func (t *Target) Publish(ctx context.Context, m *sink.Message) {
	if t.client != nil && t.gate.IsShut() {
		t.client.Close()
		t.client = nil
	}
	if t.client == nil {
		if err := t.connect(); err != nil {
			m.Done(err)
			return
		}
	}
	p := t.records.of(m)
	r := &p.record
	switch changed, err := t.topics.check(ctx, t.client, r.Topic, sizeOf(r)); {
	case err != nil:
		m.Done(err)
		return
	case changed: // a client asks for the limit of a topic once
		t.client.Close()
		t.client = nil
		t.Publish(ctx, m)
		return
	}
	gate := t.gate
	if err := gate.Enter(m); err != nil { // right before the publication, because Kafka may have been slow
		m.Done(err)
		return
	}
	ctx = context.WithoutCancel(ctx)
	o := &p.outcome
	o.m = m
	o.gate = gate
	o.target = t
	o.left = 1
	tombstone := p.tombstone // the parcel is gone with its last record
	if tombstone != nil {
		o.left++
	}
	report := o.report
	t.client.Produce(ctx, r, report)
	if tombstone != nil {
		t.client.Produce(ctx, tombstone, report)
	}
}

// Destination implements sink.Router.
func (t *Target) Destination(m *sink.Message) string { return "topic " + t.names.Of(m) }

// connect makes a client, which connects at its first use. When a term ends with records under way,
// the gate refuses to write them, and the client is discarded with its buffers, so that they are
// never sent later. Records fail after the timeout even if a broker holds them: the client then
// publishes under a new epoch, and the topic refuses what the broker would still append.
func (t *Target) connect() error {
	gate := &sink.Gate{}
	client, err := kgo.NewClient(append(t.cfg.options(gate), kgo.ProducerBatchMaxBytesFn(t.topics.max), kgo.AllowIdempotentProduceCancellation())...)
	if err != nil {
		return fmt.Errorf("make Kafka client: %w", err)
	}
	gate.Shut = client.Close
	t.client = client
	t.gate = gate
	t.records = t.newRecordMaker()
	return nil
}

// An outcome is the outcome of a message's records.
type outcome struct {
	parcel *parcel                  // that it is of
	report func(*kgo.Record, error) // done
	target *Target
	m      *sink.Message
	gate   *sink.Gate

	mu   sync.Mutex
	left int
	err  error
}

func (o *outcome) done(r *kgo.Record, err error) {
	o.mu.Lock()
	o.left--
	o.err = cmp.Or(o.err, err)
	last := o.left == 0
	o.mu.Unlock()
	if !last {
		return
	}
	m := o.m
	o.gate.Leave(m)
	switch err = judge(o.err, r.Topic); {
	case err == nil:
		o.target.recycle(o.parcel)
	case o.gate.IsShut():
		err = fmt.Errorf("%w: a term has ended: %w", sink.ErrEarlier, o.err)
	default:
		o.target.topics.refused(err, r.Topic)
	}
	m.Done(err)
}

// judge distinguishes the refusal of a record for a topic, which may be unknown, from an
// unreachable broker.
func judge(err error, topic string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.InvalidTxnState), errors.Is(err, kerr.TransactionAbortable):
		return fmt.Errorf("%w: %w", sink.ErrReplaced, err)
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return &sink.RefusedError{Err: fmt.Errorf("publish to Kafka, topic %s: %w: raise its max.message.bytes, or let the sink have a dead_letter", topic, err), Final: true, Among: true}
	case errors.Is(err, kerr.InvalidRecord), errors.Is(err, kerr.InvalidTopicException), errors.Is(err, kerr.InvalidTimestamp):
		return &sink.RefusedError{Err: refusal(topic, err), Final: true, Among: true}
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.PolicyViolation):
		return &sink.RefusedError{Err: refusal(topic, err), Destination: true}
	default:
		return fmt.Errorf("publish to Kafka, topic %s: %w", topic, err)
	}
}

// Flush implements sink.Target. Records wait for others a little.
func (t *Target) Flush() {}

// Close implements sink.Target.
func (t *Target) Close() {
	if t.client != nil {
		t.client.Close()
	}
}
