package kafka

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/extjson"
	"github.com/mongostream/streamer/sink"
)

// A recordMaker makes the records of messages, in parcels that were used before, and caches
// recurring parts. Only one goroutine may use it.
type recordMaker struct {
	target     *Target
	media      []byte
	topics     *sink.Names
	operations map[string][]byte
	partitions map[change.Partition][]byte
	prefixes   map[change.Namespace][]byte
	last       change.Namespace // of the last prefix
	lastPrefix []byte           // nil before the first
	merged     bool             // topics have several collections
}

// A parcel is the record of a message with all that is its own, and the tombstone that follows a
// delete.
type parcel struct {
	record    kgo.Record
	tombstone *kgo.Record // nil if none follows
	headers   [headersOf]kgo.RecordHeader
	text      []byte // of the headers and the key
	outcome   outcome
}

const (
	// headersOf is the number of headers of a record.
	headersOf = 5
	// textOf is what the texts of a record take about, maxText the most that a parcel keeps, in
	// bytes.
	textOf, maxText = 160, 4 << 10
	// maxPrefixes bounds the prefixes of keys that are kept.
	maxPrefixes = 10_000
)

// parcel returns an empty parcel. Records are made for each change, so that most of a sink's
// garbage would be these.
func (t *Target) parcel() *parcel {
	if p, is := t.spare.Get().(*parcel); is {
		return p
	}
	p := &parcel{text: make([]byte, 0, textOf)}
	p.outcome.parcel = p
	p.outcome.report = p.outcome.done
	return p
}

// recycle takes back a parcel that Kafka has acknowledged: its client has forgotten the records. It
// may still have those that have failed. The text of a long key is not kept.
func (t *Target) recycle(p *parcel) {
	if cap(p.text) > maxText {
		return
	}
	*p = parcel{text: p.text[:0], outcome: outcome{parcel: p, report: p.outcome.report}}
	t.spare.Put(p)
}

func (t *Target) newRecordMaker() *recordMaker {
	byDatabase := t.cfg.OneDatabase || t.topic.Has("db")
	byCollection := t.cfg.OneCollection || t.topic.Has("coll")
	return &recordMaker{
		target: t, media: []byte(t.cfg.Format.MediaType()), topics: sink.NewNames(t.topic), operations: make(map[string][]byte),
		partitions: make(map[change.Partition][]byte), prefixes: make(map[change.Namespace][]byte), merged: !byDatabase || !byCollection,
	}
}

// of returns the record of a message, and the tombstone that follows a delete.
func (k *recordMaker) of(m *sink.Message) *parcel {
	p := k.target.parcel()
	headers := append(p.headers[:0],
		kgo.RecordHeader{Key: "streamer-id", Value: p.write(func(b []byte) []byte { return append(b, m.ID...) })},
		kgo.RecordHeader{Key: "streamer-op", Value: k.operation(m.Op)},
		kgo.RecordHeader{Key: "streamer-time", Value: p.write(m.Time.AppendText)},
		kgo.RecordHeader{Key: "content-type", Value: k.media},
	)
	record := &p.record
	record.Key = k.key(p, m)
	record.Value = m.Value
	if m.Op == sink.OpLoss {
		record.Topic = k.target.cfg.Losses
		record.Headers = headers
		return p
	}
	record.Headers = append(headers, kgo.RecordHeader{Key: "streamer-partition", Value: k.partition(m.Partition)})
	record.Topic = k.topics.Of(m)
	if k.target.cfg.Tombstones && m.Op == "delete" {
		p.tombstone = &kgo.Record{Topic: record.Topic, Key: record.Key, Headers: record.Headers}
	}
	return p
}

// key returns the key of a record. Every record has one, because compacted topics refuse others,
// and no two documents of a topic share one. If the topic does not identify the collection, the key
// contains it, in an array, because no _id is an array.
func (k *recordMaker) key(p *parcel, m *sink.Message) []byte {
	switch {
	case m.Op == sink.OpLoss:
		return append(extjson.AppendString([]byte("["), []byte(m.ID)), ']')
	case m.Key == nil:
		return append(extjson.AppendString([]byte("["), []byte(m.Namespace())), ']')
	case k.target.cfg.Format == sink.Debezium && k.merged:
		return sink.DebeziumKey(m.Key, []byte(m.Namespace()))
	case k.target.cfg.Format == sink.Debezium:
		return sink.DebeziumKey(m.Key, nil)
	case k.merged:
		prefix := k.prefix(m)
		return p.write(func(b []byte) []byte { return append(append(append(b, prefix...), m.Key...), ']') })
	}
	return m.Key
}

// prefix returns the beginning of a key that has the namespace.
func (k *recordMaker) prefix(m *sink.Message) []byte {
	of := change.Namespace{DB: m.DB, Coll: m.Coll}
	if of == k.last && k.lastPrefix != nil {
		return k.lastPrefix
	}
	b, known := k.prefixes[of]
	if !known {
		if len(k.prefixes) >= maxPrefixes {
			clear(k.prefixes)
		}
		b = append(extjson.AppendString([]byte("["), []byte(m.Namespace())), ',')
		k.prefixes[of] = b
	}
	k.last = of
	k.lastPrefix = b
	return b
}

// write returns the text that appends.
func (p *parcel) write(text func([]byte) []byte) []byte {
	begun := len(p.text)
	p.text = text(p.text)
	return p.text[begun:len(p.text):len(p.text)]
}

func (k *recordMaker) operation(op string) []byte {
	b, known := k.operations[op]
	if !known {
		b = []byte(op)
		k.operations[op] = b
	}
	return b
}

func (k *recordMaker) partition(p change.Partition) []byte {
	b, known := k.partitions[p]
	if !known {
		b = strconv.AppendUint(nil, uint64(p), 10)
		k.partitions[p] = b
	}
	return b
}
