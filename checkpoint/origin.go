package checkpoint

import (
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
}

// Of reports whether the origin may be of the deployment: where its id could not be read once, for want of a right, the names decide.
func (o Origin) Of(source string) bool {
	return o.Source == source || strings.HasPrefix(o.Source, source+"/") || strings.HasPrefix(source, o.Source+"/")
}

// Equal reports whether two origins are the same.
func (o Origin) Equal(p Origin) bool {
	same := o.At.Equal(p.At)
	o.At, p.At = time.Time{}, time.Time{}
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
