package change

import "github.com/cespare/xxhash/v2"

// A Partition is one of N shares of the documents, numbered from 0.
type Partition uint32

// MaxPartitions bounds N.
const MaxPartitions = 16384

// A Partitioner assigns documents to partitions: xxhash64(namespace, 0, canonical _id) mod N. The
// result is the same on every node and in every version, because checkpoints depend on it;
// testdata/partition.golden records it.
type Partitioner struct {
	n      uint64
	format IDFormat
}

// NewPartitioner returns a Partitioner for n partitions, 1 to MaxPartitions, by the latest format.
func NewPartitioner(n int) Partitioner { return LatestIDFormat.Partitioner(n) }

// Partitioner returns a Partitioner for n partitions, 1 to MaxPartitions, by the format of a
// cluster.
func (f IDFormat) Partitioner(n int) Partitioner { return Partitioner{n: uint64(n), format: f} }

// Of returns the partition of the event's document. keyed is false for an event without a document
// key, which concerns every partition.
func (p Partitioner) Of(e *Event) (partition Partition, keyed bool) {
	id := e.ID()
	if id.IsZero() {
		return 0, false
	}
	if p.format.nests(id) {
		return p.hash(p.format.append(appendPrefix(nil, e), id, 0)), true
	}
	var stack [192]byte
	return p.hash(appendScalar(appendPrefix(stack[:0], e), id)), true
}

func (p Partitioner) hash(b []byte) Partition { return Partition(xxhash.Sum64(b) % p.n) }

// appendPrefix appends the namespace and a zero byte.
func appendPrefix(b []byte, e *Event) []byte {
	b = append(append(b, e.DB()...), '.')
	return append(append(b, e.Coll()...), 0)
}
