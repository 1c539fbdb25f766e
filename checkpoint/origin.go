package checkpoint

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
)

// An Origin is the record that the first start writes, with everything that must not change
// afterwards.
type Origin struct {
	// Cluster is the random ID of the cluster.
	Cluster string
	// Incarnation is 1; an operator raises it after a restore.
	Incarnation uint64
	// Partitions is N. IDFormat is that of the _ids by which documents have their partitions.
	Partitions int
	IDFormat   change.IDFormat
	// Source identifies the MongoDB deployment of the positions.
	Source string
	// Start is the operation time at which a shared subscriber without a checkpoint begins.
	Start change.Timestamp
	// At is when it was written, By by which node; for information.
	At time.Time
	By string
	// Backend is where the checkpoints are stored; later nodes complete the parts that the first
	// ones did not know.
	Backend Backend
}

// A Backend is the store of a cluster's checkpoints and the etcd through which its nodes share
// partitions. Empty fields are unknown.
type Backend struct {
	// Store is BackendEtcd or BackendMongo.
	Store string
	// Etcd is the ID of the etcd cluster in hexadecimal, as in etcd's log. Prefix is the prefix of
	// the keys.
	Etcd, Prefix string
	// ID is random. It distinguishes etcd clusters that were set up identically and have the same
	// cluster ID.
	ID string
}

// What keeps checkpoints.
const (
	BackendEtcd  = "etcd"
	BackendMongo = "mongo"
)

// With returns the backend with missing fields taken from known.
func (b Backend) With(known Backend) Backend {
	return Backend{
		Store: cmp.Or(b.Store, known.Store), Etcd: cmp.Or(b.Etcd, known.Etcd), Prefix: cmp.Or(b.Prefix, known.Prefix), ID: cmp.Or(b.ID, known.ID),
	}
}

// Of reports whether the origin may belong to the deployment. If the deployment's ID was not
// readable, it compares the names.
func (o Origin) Of(source string) bool {
	return o.Source == source || strings.HasPrefix(o.Source, source+"/") || strings.HasPrefix(source, o.Source+"/")
}

// Equal reports whether two origins are the same, ignoring their backends.
func (o Origin) Equal(p Origin) bool {
	same := o.At.Equal(p.At)
	o.At, p.At = time.Time{}, time.Time{}
	o.Backend, p.Backend = Backend{}, Backend{}
	return same && o == p
}

// Follows returns an error unless the origin may replace the last one.
func (o Origin) Follows(last Origin) error {
	if o.Partitions != last.Partitions || o.IDFormat != last.IDFormat || o.Incarnation <= last.Incarnation {
		return fmt.Errorf("incarnation %d of %d partitions cannot follow incarnation %d of %d",
			o.Incarnation, o.Partitions, last.Incarnation, last.Partitions)
	}
	return nil
}
