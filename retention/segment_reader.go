package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// fetchSize is how much of a segment is fetched at once, at least.
const fetchSize = 1 << 20

// A segmentReader yields the entries of a segment in their order. It holds a block of each lane and
// the last fetched bytes. It must not be used concurrently.
type segmentReader struct {
	store   Store
	key     string
	header  Header
	decoder *zstd.Decoder

	fetched []byte // of the object, from at on
	at      int64

	footer  *footer
	cursors [lanes]laneCursor
	damaged []oplog.Loss // found and not returned yet
}

// A laneCursor is a place in a lane.
type laneCursor struct {
	blocks  []*block // that are left
	block   *block   // whose records are read
	records records
	next    entry
}

// readHeader reads the header of a segment. It returns ErrNotFound, ErrFormat, an error that wraps
// errDamaged, or one of the store.
func readHeader(ctx context.Context, store Store, key string) (Header, Object, error) {
	b, about, err := store.Get(ctx, key, 0, headerSize)
	if err != nil {
		return Header{}, about, err
	}
	h, err := parseHeader(b)
	return h, about, err
}

// newSegmentReader returns a reader of the segment of a header.
func newSegmentReader(store Store, key string, h Header, decoder *zstd.Decoder) *segmentReader {
	return &segmentReader{store: store, key: key, header: h, decoder: decoder}
}

// fetch returns n bytes from an offset. It reads ahead unless the bytes are alone at the end.
func (r *segmentReader) fetch(ctx context.Context, offset int64, n int) ([]byte, error) {
	if from := offset - r.at; from >= 0 && from+int64(n) <= int64(len(r.fetched)) {
		return r.fetched[from : from+int64(n)], nil
	}
	b, _, err := r.store.Get(ctx, r.key, offset, max(int64(n), fetchSize))
	if err != nil {
		return nil, err
	}
	r.fetched, r.at = b, offset
	if len(b) < n {
		return nil, fmt.Errorf("%w: it ends after %d of %d bytes", errDamaged, offset+int64(len(b)), r.header.Size)
	}
	return b[:n], nil
}

// refetch is fetch without the bytes fetched before, which were damaged.
func (r *segmentReader) refetch(ctx context.Context, offset int64, n int) ([]byte, error) {
	r.fetched = nil
	return r.fetch(ctx, offset, n)
}

// open reads the footer. Blocks of earlier times than from are left out.
func (r *segmentReader) open(ctx context.Context, from change.Timestamp) error {
	footer, err := r.readFooter(ctx, r.fetch)
	if errors.Is(err, errDamaged) {
		footer, err = r.readFooter(ctx, r.refetch)
	}
	if err != nil {
		return r.rewritten(ctx, err)
	}
	r.footer, r.cursors, r.damaged = footer, [lanes]laneCursor{}, nil // also after an attempt that failed
	for i := range footer.Blocks {
		k := &footer.Blocks[i]
		if k.To.Compare(from) >= 0 {
			r.cursors[k.Lane].blocks = append(r.cursors[k.Lane].blocks, k)
		}
	}
	for i := range footer.Forgotten {
		if f := &footer.Forgotten[i]; f.To.Compare(from) > 0 {
			r.damaged = append(r.damaged, f.loss())
		}
	}
	for n := range r.cursors {
		if err := r.advance(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (r *segmentReader) readFooter(ctx context.Context, fetch func(context.Context, int64, int) ([]byte, error)) (*footer, error) {
	trailer, err := fetch(ctx, r.header.Size-trailerSize, trailerSize)
	if err != nil {
		return nil, err
	}
	offset, length, sum, err := parseTrailer(trailer, &r.header)
	if err != nil {
		return nil, err
	}
	b, err := fetch(ctx, offset, int(length))
	if err != nil {
		return nil, err
	}
	f, err := parseFooter(b, sum, offset-r.header.size)
	if err == nil && (len(f.Lanes) > lanes || f.ID != r.header.ID || f.Rewritten != r.header.Rewritten) {
		return nil, fmt.Errorf("%w: footer of another segment", errDamaged)
	}
	return f, err
}

// advance finds the next entry of a lane. Blocks that cannot be read become losses.
func (r *segmentReader) advance(ctx context.Context, n int) error {
	c := &r.cursors[n]
	for {
		e, ok, err := c.records.next()
		switch {
		case err != nil:
			r.damage(c.block)
			c.records.rest = nil
			continue
		case ok:
			c.next = e
			return nil
		case len(c.blocks) == 0:
			c.next = entry{ordinal: done}
			return nil
		}
		k := c.blocks[0]
		content, err := r.readBlock(ctx, k)
		if err != nil {
			err = r.rewritten(ctx, err)
		}
		switch {
		case errors.Is(err, errDamaged):
			r.damage(k)
		case err != nil:
			return err
		default:
			c.block = k
			c.records = reading(k, content)
		}
		c.blocks = c.blocks[1:]
	}
}

// done is the ordinal of a lane without further entries.
const done = ^uint64(0)

func (r *segmentReader) readBlock(ctx context.Context, k *block) ([]byte, error) {
	b, err := r.fetch(ctx, r.header.size+k.Offset, k.Stored)
	if err == nil {
		b, err = parseBlock(b, r.decoder, k)
	}
	if !errors.Is(err, errDamaged) {
		return b, err
	}
	if b, err = r.refetch(ctx, r.header.size+k.Offset, k.Stored); err != nil {
		return nil, err
	}
	return parseBlock(b, r.decoder, k)
}

// damage records the loss of a block: everything of its namespaces from its first change to its
// last one.
func (r *segmentReader) damage(k *block) {
	r.damaged = append(r.damaged, oplog.Loss{
		From: change.At(k.From), To: change.At(k.To.Next()), Reason: gap.Damaged, Namespaces: r.footer.Lanes[k.Lane].Namespaces,
		Found: time.Now(),
	})
}

// next returns the next entry; ok is false at the end.
func (r *segmentReader) next(ctx context.Context) (e entry, ok bool, err error) {
	first := 0
	for n := range r.cursors {
		if r.cursors[n].next.ordinal < r.cursors[first].next.ordinal {
			first = n
		}
	}
	e = r.cursors[first].next
	if e.ordinal == done {
		return e, false, nil
	}
	return e, true, r.advance(ctx, first)
}
