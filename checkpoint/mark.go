package checkpoint

import (
	"cmp"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
)

// Reason says why a mark was saved.
type Reason string

// The reasons.
const (
	ReasonInterval Reason = "interval" // the policy's time or count
	ReasonIdle     Reason = "idle"     // nothing happened, but the log moves on
	ReasonBegin    Reason = "begin"    // the first one of a term
	ReasonFinal    Reason = "final"    // the last one of a term that ended as planned
	ReasonHandoff  Reason = "handoff"  // the partition moved to another node
	ReasonRecovery Reason = "recovery" // the partition went on behind something that the log had lost
	ReasonRewind   Reason = "rewind"   // an operator moved it back
	ReasonImport   Reason = "import"   // an operator took it from elsewhere
)

// routine reports whether marks of the reason come again and again and mean nothing each by itself.
func (r Reason) routine() bool { return r == ReasonInterval || r == ReasonIdle }

// maxTokenBytes is the largest resume token that a mark keeps; of a larger one only the time is kept, which replays a little more.
const maxTokenBytes = 16 << 10

// A Mark is a saved checkpoint: everything of its partition up to and including Position has been acknowledged.
type Mark struct {
	Partition change.Partition
	Position  change.Position
	// Generation counts the rewinds of the partition. A mark is saved with the generation that stands when it is zero; one that
	// carries a lower generation than stands is fenced.
	Generation uint64
	// Fingerprint names what the stream was opened with; the position's token is only good for the same one. It is empty where
	// nobody knows.
	Fingerprint string
	// Epoch is the term that saved the mark. Its revision is 0 where an operator wrote it.
	Epoch change.Epoch
	// At is when, by the clock of the process that saved it; informative only.
	At time.Time
	// By is the node that saved it, or the operator.
	By     string
	Reason Reason
	// Note is what an operator said about it.
	Note string
	// Of is of how many partitions Partition was one, in a history from before these were counted anew; 0 is as many as there are.
	Of int
}

// Trimmed returns the mark as stores keep it: a token that is too large, or that nobody could read back, is replaced by its
// time. Time and token of a position of which both can be read are kept as they are.
func (m Mark) Trimmed() Mark {
	m.Position = trimmed(m.Position)
	return m
}

func trimmed(p change.Position) change.Position {
	if p.Token == nil {
		return p
	}
	if _, err := change.ParseToken(p.Token); err != nil || len(p.Token) > maxTokenBytes {
		return change.At(p.Time)
	}
	return p
}

// An Origin is the beginning that the first start wrote, together with what must not change afterwards.
type Origin struct {
	// Cluster is the random id of this set of marks.
	Cluster string
	// Incarnation is 1, raised by an operator after a restore.
	Incarnation uint64
	// Partitions is N.
	Partitions int
	// Source identifies the MongoDB deployment that the positions belong to.
	Source string
	// Start is the operation time at which a partition without a mark begins.
	Start change.Timestamp
	// At is when it was written, By by which node; informative only.
	At time.Time
	By string
	// Backend is where the marks are; what the first nodes did not know of it, later ones complete.
	Backend Backend
}

// A Backend is where a cluster keeps its marks, and through which etcd its nodes share the partitions. What is empty is not known.
type Backend struct {
	// Store is what keeps the marks: BackendEtcd or BackendMongo.
	Store string
	// Etcd is the id of etcd's own cluster, in hexadecimal as in etcd's log. Prefix is that of the keys there.
	Etcd, Prefix string
	// ID is random. It tells etcds apart that were set up alike, and so have one cluster id.
	ID string
}

// What keeps marks.
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
