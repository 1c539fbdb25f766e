package oplog

import (
	"hash/fnv"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
)

// Shards is how many shards' logs this is; 0 where it is one server's.
func (l *Log) Shards() int { return l.config.Shards }

// ShardOf is the shard that has a document: that of its _id's number, where it has one.
func (l *Log) ShardOf(id bsoncore.Value) int {
	n, ok := doc.Int(id)
	if !ok {
		h := fnv.New32a()
		_, _ = h.Write(id.Data)
		n = int64(h.Sum32())
	}
	shards := int64(l.config.Shards)
	return int((n%shards + shards) % shards)
}

// shardOf is the shard whose log an entry belongs to. What concerns no document is the first one's.
func (l *Log) shardOf(e *Entry) uint8 {
	switch {
	case e.Kind == Noop:
		return e.Shard
	case e.NS != nil && e.NS.DB == "config":
		return uint8(l.config.Shards)
	case !e.Kind.CRUD():
		return 0
	}
	key, _ := doc.Field(e.Event, "documentKey")
	id, _ := doc.Field(key.Data, "_id")
	return uint8(l.ShardOf(id))
}

// AppliedOn is the cluster time of the newest entry of a shard's log.
func (l *Log) AppliedOn(shard int) uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.onShard[shard]
}

// CommittedOn is the cluster time up to which a majority has a shard's log.
func (l *Log) CommittedOn(shard int) uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return min(l.onShard[shard], l.committedTS.Load())
}
