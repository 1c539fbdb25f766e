package checkpoint

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
)

// An Origin is the beginning that the first start wrote, together with what must not change afterwards.
type Origin struct {
	// Cluster is the random id of this set of checkpoints.
	Cluster string
	// Incarnation is 1, raised by an operator after a restore.
	Incarnation uint64
	// Partitions is N.
	Partitions int
	// Source identifies the MongoDB deployment that the positions belong to.
	Source string
	// Start is the operation time at which a shared subscriber without a checkpoint begins.
	Start change.Timestamp
	// At is when it was written, By by which node; informative only.
	At time.Time
	By string
	// Backend is where the checkpoints are; what the first nodes did not know of it, later ones complete.
	Backend Backend
}

// A Backend is where a cluster keeps its checkpoints, and through which etcd its nodes share the partitions. What is empty is not known.
type Backend struct {
	// Store is what keeps the checkpoints: BackendEtcd or BackendMongo.
	Store string
	// Etcd is the id of etcd's own cluster, in hexadecimal as in etcd's log. Prefix is that of the keys there.
	Etcd, Prefix string
	// ID is random. It tells etcds apart that were set up alike, and so have one cluster id.
	ID string
}

// What keeps checkpoints.
const (
	BackendEtcd  = "etcd"
	BackendMongo = "mongo"
)

// With returns the backend, completed from another one.
func (b Backend) With(known Backend) Backend {
	return Backend{
		Store: cmp.Or(b.Store, known.Store), Etcd: cmp.Or(b.Etcd, known.Etcd), Prefix: cmp.Or(b.Prefix, known.Prefix), ID: cmp.Or(b.ID, known.ID),
	}
}

// Of reports whether the origin may be of the deployment: where its id could not be read once, for want of a right, the names decide.
func (o Origin) Of(source string) bool {
	return o.Source == source || strings.HasPrefix(o.Source, source+"/") || strings.HasPrefix(source, o.Source+"/")
}

// Equal reports whether two origins are the same, whatever is known of their backends.
func (o Origin) Equal(p Origin) bool {
	same := o.At.Equal(p.At)
	o.At, p.At = time.Time{}, time.Time{}
	o.Backend, p.Backend = Backend{}, Backend{}
	return same && o == p
}

// Follows returns an error unless the origin may take the place of the last one.
func (o Origin) Follows(last Origin) error {
	if o.Partitions != last.Partitions || o.Incarnation <= last.Incarnation {
		return fmt.Errorf("incarnation %d of %d partitions cannot follow incarnation %d of %d",
			o.Incarnation, o.Partitions, last.Incarnation, last.Partitions)
	}
	return nil
}
