package retention

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
)

// A Chain is the segments of one deployment's log, of one incarnation of the cluster. Its methods
// are safe for concurrent use.
type Chain struct {
	store  Store
	prefix string
}

// NewChain returns the chain of a source, which identifies the deployment, in a store.
func NewChain(store Store, source string, incarnation uint64) *Chain {
	sum := sha256.Sum256([]byte(source))
	return ChainAt(store, fmt.Sprintf("v1/%x/%d", sum[:8], incarnation))
}

// ChainAt returns the chain in a folder of a store.
func ChainAt(store Store, folder string) *Chain { return &Chain{store: bounded{store}, prefix: folder} }

// Folder returns the chain's folder, for ChainAt.
func (c *Chain) Folder() string { return c.prefix }

// name returns the name of a number's object: names have the order of numbers.
func name(n uint64) string { return fmt.Sprintf("%020d", n) }

// numberOf returns the number of an object; ok is false where the name is not one of ours.
func numberOf(o Object) (n uint64, ok bool) {
	n, err := strconv.ParseUint(o.Name, 10, 64)
	return n, err == nil && o.Name == name(n)
}

func (c *Chain) segments() string        { return c.prefix + "/seg" }
func (c *Chain) floors() string          { return c.prefix + "/floor" }
func (c *Chain) segment(n uint64) string { return c.segments() + "/" + name(n) }

// A Segment is a number of the chain and its object.
type Segment struct {
	Number uint64
	Object
}

// list returns the numbered objects of a folder from a number on.
func (c *Chain) list(ctx context.Context, folder string, from uint64) (all []Segment, err error) {
	after := ""
	if from > 0 {
		after = name(from - 1)
	}
	for {
		page, more, err := c.store.List(ctx, folder, after)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", folder, err)
		}
		for _, o := range page {
			if n, ok := numberOf(o); ok && n >= from {
				all = append(all, Segment{Number: n, Object: o})
			}
		}
		if !more || len(page) == 0 {
			return all, nil
		}
		after = page[len(page)-1].Name
	}
}

// Floor returns the number below which segments may be deleted. It never falls.
func (c *Chain) Floor(ctx context.Context) (uint64, error) {
	all, err := c.list(ctx, c.floors(), 0)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[len(all)-1].Number, nil
}

// Segments returns the segments from the floor on.
func (c *Chain) Segments(ctx context.Context) ([]Segment, error) {
	floor, err := c.Floor(ctx)
	if err != nil {
		return nil, err
	}
	return c.list(ctx, c.segments(), floor)
}

// Header returns the header of a number. It returns ErrNotFound, ErrFormat, an error that says that
// the segment is damaged, or one of the store. An object of another size than its segment is
// damaged. The object of a segment that was rewritten counts as old as the one that was written
// first.
func (c *Chain) Header(ctx context.Context, n uint64) (Header, Object, error) {
	h, about, err := readHeader(ctx, c.store, c.segment(n))
	if err != nil {
		return h, about, fmt.Errorf("read header of segment %d: %w", n, err)
	}
	switch {
	case h.Number != n:
		return h, about, fmt.Errorf("read header of segment %d: %w: it is number %d", n, errDamaged, h.Number)
	case h.Size != about.Size:
		return h, about, fmt.Errorf("read header of segment %d: %w: its object has %d of %d bytes", n, errDamaged, about.Size, h.Size)
	}
	if !h.Written.IsZero() && h.Written.Before(about.Modified) {
		about.Modified = h.Written
	}
	return h, about, nil
}

// unreadable reports whether the store has answered, and has no segment that can be read.
func unreadable(err error) bool { return errors.Is(err, errDamaged) || errors.Is(err, ErrNotFound) }

// A Head is the end of a chain.
type Head struct {
	Header
	Object
	// Next is the number of the next segment.
	Next uint64
}

// Head returns the last readable segment; ok is false where there is none.
func (c *Chain) Head(ctx context.Context) (head Head, ok bool, err error) {
	floor, err := c.Floor(ctx)
	if err != nil {
		return head, false, err
	}
	all, err := c.list(ctx, c.segments(), floor)
	if err != nil {
		return head, false, err
	}
	head.Next = max(floor, 1)
	if len(all) > 0 {
		head.Next = all[len(all)-1].Number + 1
	}
	for _, object := range slices.Backward(all) {
		h, about, err := c.Header(ctx, object.Number)
		switch {
		case err == nil:
			head.Header = h
			head.Object = about
			return head, true, nil
		case !unreadable(err):
			return head, false, err
		}
	}
	return head, false, nil
}

// find returns the earliest segment that has something at or after a time; ok is false where there
// is none.
func (c *Chain) find(ctx context.Context, t change.Timestamp) (found Header, ok bool, err error) {
	all, err := c.Segments(ctx)
	if err != nil {
		return found, false, err
	}
	i := sort.Search(len(all), func(i int) bool {
		h, readable, failed := c.readable(ctx, all[i:])
		if failed != nil {
			err = failed
		}
		if !readable || failed != nil {
			return true
		}
		return h.To.Compare(t) > 0 || h.Cut && h.To == t
	})
	if err != nil {
		return found, false, err
	}
	return c.readable(ctx, all[i:])
}

// readable returns the header of the first of some segments that can be read.
func (c *Chain) readable(ctx context.Context, segments []Segment) (h Header, ok bool, err error) {
	for _, s := range segments {
		h, _, err := c.Header(ctx, s.Number)
		switch {
		case err == nil:
			return h, true, nil
		case !unreadable(err):
			return h, false, err
		}
	}
	return h, false, nil
}

// after returns the segment after another one; ok is false where there is none. The caller looks
// whether they fit: numbers between them may be missing, or not be readable.
func (c *Chain) after(ctx context.Context, h *Header) (next Header, ok bool, err error) {
	next, _, err = c.Header(ctx, h.Number+1)
	switch {
	case err == nil && h.precedes(&next):
		return next, true, nil
	case err != nil && !unreadable(err):
		return next, false, err
	}
	floor, err := c.Floor(ctx)
	if err != nil {
		return next, false, err
	}
	later, err := c.list(ctx, c.segments(), max(floor, h.Number+1))
	if err != nil {
		return next, false, err
	}
	return c.readable(ctx, later)
}

// An Extent is the stretch of the log that a chain has.
type Extent struct {
	// From and To bound the stretch as a segment's do; both are zero where there is no segment.
	From, To change.Timestamp
	// Bytes is the size of its segments.
	Bytes int64
}

// Extend returns the reach of an oplog with that of the stretch before it, which is expired by an
// age and a size; zero is no bound. What expires next is of the stretch, whether or not the oplog
// grows.
func (e Extent) Extend(oplog gap.Reach, age time.Duration, bytes int64) gap.Reach {
	oplog.Retained = e.Begins(oplog)
	if oplog.Begins() == oplog.First {
		return oplog
	}
	oplog.Growing = age == 0 && bytes == 0
	oplog.Spare = e.spare(age, bytes)
	return oplog
}

// spare returns by how much log time the stretch can grow before its oldest part expires. Its size
// grows as it has until now.
func (e Extent) spare(age time.Duration, bytes int64) time.Duration {
	const unbounded = 100 * 365 * 24 * time.Hour // which can be added to
	length := e.To.Time().Sub(e.From.Time())
	spare := unbounded
	if age > 0 {
		spare = age - length
	}
	if bytes > 0 && e.Bytes > 0 {
		most := float64(length) * float64(bytes) / float64(e.Bytes)
		spare = min(spare, time.Duration(min(most, float64(unbounded)))-length)
	}
	return max(0, spare)
}

// Begins returns the time from which on everything can be read up to the end of an oplog, zero
// where the chain does not reach the middle of that: even an idle one does, unless it stalls, and
// then it is about to leave the oplog. In an oplog of a few minutes segments may take as long as
// that.
func (e Extent) Begins(oplog gap.Reach) change.Timestamp {
	most := max(0, oplog.Length()/2-time.Minute) // of the oplog, before the segments' end
	if oplog.First.IsZero() || e.To.Time().Before(oplog.First.Time().Add(most)) {
		return change.Timestamp{}
	}
	return e.From
}

func bytesOf(all []Segment) (n int64) {
	for _, s := range all {
		n += s.Size
	}
	return n
}

// Extent returns the stretch from the first segment to the last one.
func (c *Chain) Extent(ctx context.Context) (Extent, error) {
	all, err := c.Segments(ctx)
	if err != nil {
		return Extent{}, err
	}
	first, found, err := c.readable(ctx, all)
	if err != nil || !found {
		return Extent{}, err
	}
	for i := len(all) - 1; ; i-- {
		last, readable, err := c.readable(ctx, all[i:])
		if err != nil || readable {
			return Extent{From: first.From, To: last.To, Bytes: bytesOf(all)}, err
		}
	}
}
