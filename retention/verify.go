package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// A Finding is a problem of a segment.
type Finding struct {
	Segment uint64 `json:"segment"`
	Problem string `json:"problem"`
}

// A Verification is the outcome of reading a whole chain.
type Verification struct {
	// Segments, Events and Losses are the numbers of the readable ones. Bytes is the size of the
	// segments, Raw that of the changes before compression.
	Segments int   `json:"segments"`
	Events   int   `json:"changes"`
	Losses   int   `json:"losses"`
	Bytes    int64 `json:"bytes"`
	Raw      int64 `json:"raw_bytes"`
	// Findings are the problems, in the order of the segments.
	Findings []Finding `json:"findings"`
}

func (v *Verification) find(n uint64, format string, args ...any) {
	v.Findings = append(v.Findings, Finding{Segment: n, Problem: fmt.Sprintf(format, args...)})
}

// Verify reads every block of the chain and looks whether each segment follows the one before. It
// returns an error only where the store does not answer.
func (c *Chain) Verify(ctx context.Context) (v Verification, err error) {
	v.Findings = []Finding{}
	all, err := c.Segments(ctx)
	if err != nil {
		return v, err
	}
	decoder := newDecoder()
	defer decoder.Close()
	var previous *Header
	for _, s := range all {
		v.Bytes += s.Size
		h, _, err := c.Header(ctx, s.Number)
		if err == nil {
			if previous != nil {
				v.follows(previous, &h)
			}
			previous = &h
			err = v.read(ctx, c, &h, decoder)
		}
		if errors.Is(err, errRewritten) { // meanwhile
			if h, _, err = c.Header(ctx, s.Number); err == nil {
				err = v.read(ctx, c, &h, decoder)
			}
		}
		switch {
		case unreadable(err), errors.Is(err, ErrFormat):
			v.find(s.Number, "%v", err)
		case err != nil:
			return v, err
		default:
			v.Segments++
		}
	}
	return v, nil
}

// follows looks whether a segment is the next one of another.
func (v *Verification) follows(previous, h *Header) {
	switch {
	case previous.precedes(h):
	case h.From.Compare(previous.To) > 0:
		v.find(h.Number, "changes from %s to %s are missing before it", previous.To, h.From)
	default:
		v.find(h.Number, "it does not follow segment %d", previous.Number)
	}
}

// read reads all entries of a segment.
func (v *Verification) read(ctx context.Context, c *Chain, h *Header, decoder *zstd.Decoder) error {
	r := newSegmentReader(c.store, c.segment(h.Number), *h, decoder, nil)
	if err := r.open(ctx, change.Timestamp{}); err != nil {
		return err
	}
	events := 0
	losses := 0
	last := h.From
	for {
		e, ok, err := r.next(ctx)
		switch {
		case err != nil:
			return err
		case !ok:
			r.damaged = slices.DeleteFunc(r.damaged, func(l oplog.Loss) bool { return l.Reason == gap.Forgotten })
			for _, l := range r.damaged {
				v.find(h.Number, "a block of %s from %s to %s is damaged", namespaces(l.Namespaces), l.From, l.To)
			}
			if len(r.damaged) == 0 && (events != h.Events || losses != h.Losses) {
				v.find(h.Number, "it has %d changes and %d losses, and its header says %d and %d", events, losses, h.Events, h.Losses)
			}
			v.Events += events
			v.Losses += losses
			return nil
		case e.loss != nil:
			losses++
			continue
		}
		events++
		v.Raw += int64(len(e.raw))
		parsed, err := change.Parse(e.raw)
		if err != nil {
			v.find(h.Number, "change %d: %v", events, err)
			continue
		}
		t := parsed.Time()
		isBeyond := t.Compare(h.To) > 0 || t == h.To && !h.Cut
		if t.Compare(last) < 0 || isBeyond {
			v.find(h.Number, "change %d of time %s is not between %s and %s", events, t, last, h.To)
		} else {
			last = t
		}
	}
}

// namespaces names some namespaces, or all.
func namespaces(names []string) string {
	if len(names) == 0 {
		return "all namespaces"
	}
	return strings.Join(names, ", ")
}

// A Lane describes the blocks of some namespaces in a segment.
type Lane struct {
	// Namespaces are the names; none if there are too many to list, and of losses.
	Namespaces []string `json:"namespaces"`
	Losses     bool     `json:"losses,omitempty"` // instead of changes
	Blocks     int      `json:"blocks"`
	Entries    int      `json:"entries"`
	Bytes      int64    `json:"bytes"`     // as stored
	Raw        int64    `json:"raw_bytes"` // before compression
}

// Lanes returns the lanes of a segment that have something. It returns an error as Header does.
func (c *Chain) Lanes(ctx context.Context, h Header) ([]Lane, error) {
	r := newSegmentReader(c.store, c.segment(h.Number), h, nil, nil)
	f, err := r.readFooter(ctx, r.fetch)
	if err != nil {
		return nil, fmt.Errorf("read footer of segment %d: %w", h.Number, err)
	}
	all := make([]Lane, len(f.Lanes))
	for i, l := range f.Lanes {
		all[i].Namespaces = append([]string{}, l.Namespaces...)
	}
	for _, k := range f.Blocks {
		l := &all[k.Lane]
		l.Losses = k.Kind == losses
		l.Blocks++
		l.Entries += k.Count
		l.Bytes += int64(k.Stored)
		l.Raw += int64(k.Raw)
	}
	return slices.DeleteFunc(all, func(l Lane) bool { return l.Blocks == 0 }), nil
}
