package change

import "github.com/cespare/xxhash/v2"

// A Partition is one of N shares of the documents, numbered from 0.
type Partition uint32

// MaxPartitions bounds N.
const MaxPartitions = 16384

// A Partitioner says which partition a document belongs to: xxhash64(namespace, 0, canonical _id) mod N.
// The answer is the same on every node and in every version, because marks depend on it; testdata/partition.golden holds it.
type Partitioner struct {
	n uint64
}

// NewPartitioner makes a Partitioner over n partitions, 1 to MaxPartitions.
func NewPartitioner(n int) Partitioner { return Partitioner{n: uint64(n)} }

// Count returns N.
func (p Partitioner) Count() int { return int(p.n) }

// Of returns the partition of the event's document. An event without a document key concerns every partition: keyed is
// false and the partition means nothing.
func (p Partitioner) Of(e *Event) (partition Partition, keyed bool) {
	id := e.ID()
	if id.IsZero() {
		return 0, false
	}
	if id.isNested() {
		return p.hash(AppendCanonical(appendPrefix(nil, e), id)), true
	}
	var stack [192]byte
	return p.hash(appendScalar(appendPrefix(stack[:0], e), id)), true
}

func (p Partitioner) hash(b []byte) Partition { return Partition(xxhash.Sum64(b) % p.n) }

// appendPrefix appends the namespace and the zero byte behind it.
func appendPrefix(b []byte, e *Event) []byte {
	b = append(append(b, e.DB()...), '.')
	return append(append(b, e.Coll()...), 0)
}
