package kafka

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/extjson"
	"github.com/mongostream/streamer/sink"
)

// A recordMaker makes the records of messages. It allocates the parts of many records at a time,
// and caches recurring parts. Only one goroutine may use it.
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

	// The unused rest of the last allocations.
	records  []kgo.Record
	outcomes []outcome
	headers  []kgo.RecordHeader
	text     []byte
}

const (
	// chunk is the number of records whose parts are allocated together.
	chunk = 256
	// headersOf is the number of headers of a record.
	headersOf = 5
	// textOf is what the texts of a record take about, timeOf its time, in bytes.
	textOf, timeOf = 128, 32
	// maxPrefixes bounds the prefixes of keys that are kept.
	maxPrefixes = 10_000
)

func (t *Target) newRecordMaker() *recordMaker {
	byDatabase := t.cfg.OneDatabase || t.topic.Has("db")
	byCollection := t.cfg.OneCollection || t.topic.Has("coll")
	return &recordMaker{
		target: t, media: []byte(t.cfg.Format.MediaType()), topics: sink.NewNames(t.topic), operations: make(map[string][]byte),
		partitions: make(map[change.Partition][]byte), prefixes: make(map[change.Namespace][]byte), merged: !byDatabase || !byCollection,
	}
}

// of returns the record of a message, and the tombstone that follows a delete, nil if none does.
func (k *recordMaker) of(m *sink.Message) (record, tombstone *kgo.Record) {
	record = k.record()
	if cap(k.headers)-len(k.headers) < headersOf {
		k.headers = make([]kgo.RecordHeader, 0, chunk*headersOf)
	}
	begun := len(k.headers)
	k.headers = append(k.headers,
		kgo.RecordHeader{Key: "streamer-id", Value: k.bytes(len(m.ID), func(b []byte) []byte { return append(b, m.ID...) })},
		kgo.RecordHeader{Key: "streamer-op", Value: k.operation(m.Op)},
		kgo.RecordHeader{Key: "streamer-time", Value: k.bytes(timeOf, m.Time.AppendText)},
		kgo.RecordHeader{Key: "content-type", Value: k.media},
	)
	record.Key = k.key(m)
	record.Value = m.Value
	if m.Op == sink.OpLoss {
		record.Topic = k.target.cfg.Losses
		record.Headers = k.headers[begun:len(k.headers):len(k.headers)]
		return record, nil
	}
	k.headers = append(k.headers, kgo.RecordHeader{Key: "streamer-partition", Value: k.partition(m.Partition)})
	record.Topic = k.topics.Of(m)
	record.Headers = k.headers[begun:len(k.headers):len(k.headers)]
	if k.target.cfg.Tombstones && m.Op == "delete" {
		tombstone = k.record()
		tombstone.Topic, tombstone.Key, tombstone.Headers = record.Topic, record.Key, record.Headers
	}
	return record, tombstone
}

// key returns the key of a record. Every record has one, because compacted topics refuse others,
// and no two documents of a topic share one. If the topic does not identify the collection, the key
// contains it, in an array, because no _id is an array.
func (k *recordMaker) key(m *sink.Message) []byte {
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
		return k.bytes(len(prefix)+len(m.Key)+1, func(b []byte) []byte { return append(append(append(b, prefix...), m.Key...), ']') })
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

// record returns an empty record.
func (k *recordMaker) record() *kgo.Record {
	if len(k.records) == 0 {
		k.records = make([]kgo.Record, chunk)
	}
	r := &k.records[0]
	k.records = k.records[1:]
	return r
}

// outcome returns an empty outcome.
func (k *recordMaker) outcome() *outcome {
	if len(k.outcomes) == 0 {
		k.outcomes = make([]outcome, chunk)
	}
	o := &k.outcomes[0]
	k.outcomes = k.outcomes[1:]
	return o
}

// bytes returns the text that write appends, usually of at most size bytes.
func (k *recordMaker) bytes(size int, write func([]byte) []byte) []byte {
	if cap(k.text)-len(k.text) < size {
		k.text = make([]byte, 0, max(size, chunk*textOf))
	}
	begun := len(k.text)
	k.text = write(k.text)
	return k.text[begun:len(k.text):len(k.text)]
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
