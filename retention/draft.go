package retention

import (
	"crypto/rand"
	"encoding/binary"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/oplog"
)

const (
	// namedLanes is how many namespaces have a lane of their own in a segment. The others share the
	// rest lane, and losses have one.
	namedLanes = 16
	restLane   = namedLanes
	lossLane   = namedLanes + 1
	lanes      = namedLanes + 2
	// maxNames bounds the names of a lane.
	maxNames = 1000
)

// A draft is a segment that is being filled. It keeps compressed blocks, and an open block for each
// lane. It must not be used concurrently.
type draft struct {
	encoder *zstd.Encoder
	names   map[string]int // lane of each namespace, by its key
	key     []byte         // memory for the key of a namespace
	open    [lanes]openBlock
	footer  footer
	body    []byte
	ordinal uint64

	events, losses int
	raw            int64            // bytes of changes
	time           change.Timestamp // of the last change
	last           change.Position  // of the last change, a copy
	cut            change.Timestamp // the latest time at which the segment may end
}

// An openBlock is a block that is being filled.
type openBlock struct {
	block

	records []byte
}

func newDraft(encoder *zstd.Encoder) *draft {
	return &draft{encoder: encoder, names: make(map[string]int), footer: footer{Lanes: make([]lane, lanes), Targets: true}}
}

// next returns an empty draft with the memory of this one, which must not be used again.
func (d *draft) next() *draft {
	next := newDraft(d.encoder)
	for n := range d.open {
		next.open[n].records = d.open[n].records[:0]
	}
	return next
}

// empty reports whether the draft has no entries.
func (d *draft) empty() bool { return d.events == 0 && d.losses == 0 }

// add adds a change, which it copies. It returns false where the change is too large.
func (d *draft) add(e *change.Event) bool {
	if len(e.Raw()) > maxBlock-binary.MaxVarintLen64 {
		return false
	}
	n := d.laneOf(e)
	if len(e.ToDB()) > 0 {
		d.name(n, change.Namespace{DB: string(e.ToDB()), Coll: string(e.ToColl())}.String())
	}
	d.append(n, changes, e.Time(), e.Raw())
	d.events++
	d.raw += int64(len(e.Raw()))
	d.time = e.Time()
	d.last = change.Position{Time: e.Time(), Token: append(d.last.Token[:0], e.Token()...)}
	return true
}

// addLoss adds a loss.
func (d *draft) addLoss(l *oplog.Loss) error {
	body, err := marshalLoss(l)
	if err != nil {
		return err
	}
	d.append(lossLane, losses, l.To.Time, append(binary.AppendUvarint(nil, uint64(len(body))), body...))
	d.losses++
	return nil
}

// laneOf returns the lane of a change's namespace.
func (d *draft) laneOf(e *change.Event) int {
	d.key = append(append(append(d.key[:0], e.DB()...), '.'), e.Coll()...)
	n, known := d.names[string(d.key)]
	if !known {
		n = min(len(d.names), restLane)
		d.names[string(d.key)] = n
		d.footer.Lanes[n].Namespaces = append(d.footer.Lanes[n].Namespaces, e.Namespace().String())
	}
	return n
}

// name adds a namespace to those that the changes of a lane concern.
func (d *draft) name(n int, namespace string) {
	if l := &d.footer.Lanes[n]; len(l.Namespaces) <= maxNames && !slices.Contains(l.Namespaces, namespace) {
		l.Namespaces = append(l.Namespaces, namespace)
	}
}

// append adds a record to the open block of a lane.
func (d *draft) append(n int, kind kind, at change.Timestamp, body []byte) {
	o := &d.open[n]
	if len(o.records) > 0 && len(o.records)+len(body) > blockSize {
		d.closeBlock(n)
	}
	if len(o.records) == 0 {
		o.block = block{Lane: n, Kind: kind, First: d.ordinal, Last: d.ordinal, From: at}
	}
	o.records = binary.AppendUvarint(o.records, d.ordinal-o.Last)
	o.records = append(o.records, body...)
	o.Count++
	o.Last = d.ordinal
	o.To = at
	d.ordinal++
	if len(o.records) >= blockSize {
		d.closeBlock(n)
	}
}

// closeBlock compresses the open block of a lane.
func (d *draft) closeBlock(n int) {
	o := &d.open[n]
	if len(o.records) == 0 {
		return
	}
	d.body = appendBlock(d.body, d.encoder, &o.block, o.records)
	d.footer.Blocks = append(d.footer.Blocks, o.block)
	o.block = block{}
	if cap(o.records) > 2*blockSize {
		o.records = nil // of one large change
	} else {
		o.records = o.records[:0]
	}
}

// encode returns the segment. It completes the header with the draft's own fields.
func (d *draft) encode(h Header) ([]byte, Header, error) {
	for n := range d.open {
		d.closeBlock(n)
	}
	for n := range d.footer.Lanes {
		if l := &d.footer.Lanes[n]; len(l.Namespaces) > maxNames {
			l.Namespaces = nil
		}
	}
	if h.Rewritten == 0 {
		_, _ = rand.Read(h.ID[:]) // never fails
	}
	d.footer.ID, d.footer.Rewritten = h.ID, h.Rewritten
	h.Events, h.Losses = d.events, d.losses
	if d.events > 0 && h.Rewritten == 0 {
		h.Last = d.last.Ref().Append(nil)
	}
	head, err := appendHeader(nil, &h) // for its size, which does not depend on the missing fields
	if err != nil {
		return nil, h, err
	}
	segment, err := appendFooter(append(make([]byte, len(head), len(head)+len(d.body)+4096), d.body...), &d.footer)
	if err != nil {
		return nil, h, err
	}
	h.Size, h.size = int64(len(segment)), int64(len(head))
	if head, err = appendHeader(nil, &h); err != nil {
		return nil, h, err
	}
	copy(segment, head)
	return segment, h, nil
}
