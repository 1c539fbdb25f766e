package oplog

import (
	"hash/fnv"

	"github.com/mongostream/streamer/internal/devmongo/doc"
)

// Shards is how many shards' logs this is; 0 where it is one server's.
func (l *Log) Shards() int { return l.config.Shards }

// shardOf is the shard whose log an entry belongs to: by the number in the document's _id, where it has one, else by the _id's hash. Entries
// of commands belong to the first shard.
func (l *Log) shardOf(e *Entry) uint8 {
	switch {
	case e.kind == noop:
		return e.shard
	case e.ns != nil && e.ns.DB == "config":
		return uint8(l.config.Shards)
	case !e.kind.crud():
		return 0
	}
	key, _ := doc.Field(e.Event, "documentKey")
	id, _ := doc.Field(key.Data, "_id")
	n, ok := doc.Int(id)
	if !ok {
		h := fnv.New32a()
		_, _ = h.Write(id.Data)
		n = int64(h.Sum32())
	}
	shards := int64(l.config.Shards)
	return uint8((n%shards + shards) % shards)
}

// AppliedOn is the cluster time of the newest entry of a shard's log.
func (l *Log) AppliedOn(shard int) uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.onShard[shard]
}

// committedOn is the cluster time up to which a majority has a shard's log.
func (l *Log) committedOn(shard int) uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return min(l.onShard[shard], l.committedTS.Load())
}
