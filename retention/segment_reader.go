package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

const (
	// tailSize is how much of a segment's end is fetched for its footer.
	tailSize = 64 << 10
	// fetchSize is how much is fetched at once for several blocks, at most a reader's share of the
	// cache.
	fetchSize = 1 << 20
	// joinedGap bounds the bytes that are fetched in vain between two blocks, instead of another
	// request.
	joinedGap = 64 << 10
	// maxFetched bounds the fetched bytes that one reader keeps for blocks that are read later.
	maxFetched = 4 << 20
)

// A segmentReader yields the entries of a segment that concern a scope, and maybe others, in their
// order. It holds a block of each lane, and shares its blocks with the other readers of its cache.
// It must not be used concurrently.
type segmentReader struct {
	store   Store
	key     string
	header  Header
	decoder *zstd.Decoder
	cache   *cache
	scope   oplog.Scope // nil is everything

	footer  *footer
	cursors [lanes]laneCursor
	unread  []*block     // of all lanes that are read, by their offsets
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

// newSegmentReader returns a reader of the segment of a header. Without a cache it has its own.
func newSegmentReader(store Store, key string, h Header, decoder *zstd.Decoder, shared *cache) *segmentReader {
	if shared == nil {
		shared = newCache(maxFetched, nil)
	}
	return &segmentReader{store: store, key: key, header: h, decoder: decoder, cache: shared}
}

// edition identifies what is read.
func (r *segmentReader) edition() edition { return edition{r.key, r.header.ID, r.header.Rewritten} }

// fetch returns n bytes from an offset. It fetches following blocks with them.
func (r *segmentReader) fetch(ctx context.Context, offset int64, n int) ([]byte, error) {
	b, err := r.cache.get(ctx, r.store, r.edition(), offset, int64(n), r.extent(offset, int64(n)))
	if err == nil && len(b) < n {
		err = fmt.Errorf("%w: it ends after %d of %d bytes", errDamaged, offset+int64(len(b)), r.header.Size)
	}
	return b, err
}

// extent returns how much is fetched from an offset where n bytes are needed: also blocks that
// follow closely, and have not been fetched.
func (r *segmentReader) extent(offset, n int64) int64 {
	end := offset + n
	most := min(fetchSize, r.cache.share())
	for _, k := range r.unread {
		from := r.header.size + k.Offset
		to := from + int64(k.Stored)
		switch {
		case from < end:
			continue
		case from-end > joinedGap, to-offset > most, r.cache.has(r.edition(), from, int64(k.Stored)):
			return end - offset
		}
		end = to
	}
	return end - offset
}

// refetch is fetch without the bytes fetched before, which were damaged.
func (r *segmentReader) refetch(ctx context.Context, offset int64, n int) ([]byte, error) {
	r.cache.drop(r.edition(), offset, int64(n))
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
	r.footer, r.cursors, r.damaged, r.unread = footer, [lanes]laneCursor{}, nil, nil // also after an attempt that failed
	for i := range footer.Blocks {
		k := &footer.Blocks[i]
		if k.To.Compare(from) >= 0 && r.wants(k) {
			r.cursors[k.Lane].blocks = append(r.cursors[k.Lane].blocks, k)
			r.unread = append(r.unread, k)
		}
	}
	slices.SortFunc(r.unread, func(a, b *block) int { return cmp.Compare(a.Offset, b.Offset) })
	for i := range footer.Forgotten {
		if f := &footer.Forgotten[i]; f.To.Compare(from) > 0 && r.scope.Concerns(f.Namespace) {
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

// wants reports whether a block may have something that concerns the scope.
func (r *segmentReader) wants(k *block) bool {
	names := r.footer.Lanes[k.Lane].Namespaces
	return k.Kind == losses || len(names) == 0 || !r.footer.Targets || slices.ContainsFunc(names, r.scope.Concerns)
}

func (r *segmentReader) readFooter(ctx context.Context, fetch func(context.Context, int64, int) ([]byte, error)) (*footer, error) {
	at := max(0, r.header.Size-tailSize)
	end, err := fetch(ctx, at, int(r.header.Size-at))
	if err != nil {
		return nil, err
	}
	offset, length, sum, err := parseTrailer(end[len(end)-trailerSize:], &r.header)
	if err != nil {
		return nil, err
	}
	b, err := fetch(ctx, offset, int(length))
	if err != nil {
		return nil, err
	}
	f, err := parseFooter(b, sum, offset-r.header.size)
	if err != nil {
		return nil, err
	}
	isOwn := f.ID == r.header.ID && f.Rewritten == r.header.Rewritten
	if !isOwn || len(f.Lanes) > lanes {
		return nil, fmt.Errorf("%w: footer of another segment", errDamaged)
	}
	return f, nil
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
		r.unread = slices.DeleteFunc(r.unread, func(other *block) bool { return other == k })
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
		From: change.At(k.From), To: change.At(k.To.Next()), Reason: gap.Damaged, Namespaces: r.affected(k), Found: time.Now(),
	})
}

// affected returns the namespaces that the changes of a block may concern; none are all.
func (r *segmentReader) affected(k *block) (namespaces []string) {
	if !r.footer.Targets {
		return nil
	}
	for _, name := range r.footer.Lanes[k.Lane].Namespaces {
		switch {
		case name == "":
			return nil
		case !strings.Contains(name, "."):
			name += ".*"
		}
		namespaces = append(namespaces, name)
	}
	return namespaces
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
