package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
)

// ErrImmutable says that a store cannot replace segments.
var ErrImmutable = errors.New("the store does not replace segments")

// ErrChanged says that an object is not the one that was read.
var ErrChanged = errors.New("object has changed")

// A rewriter is a store that can replace objects, which only erasure does.
type rewriter interface {
	// Replace replaces an object that exists: a reader that reads all of it at once gets the old
	// one or the new one. It returns ErrNotFound where there is none, and ErrChanged where it has
	// not this version (Object.Version). After any other error it is not known whether it was
	// replaced.
	Replace(ctx context.Context, key string, data []byte, version string) error
	// Hold prepares for replacements in a folder until release is called. It fails if the store
	// cannot replace or keeps replaced objects, or while another process, whose writes Replace
	// would not notice, replaces. It removes the rest of interrupted writes.
	Hold(ctx context.Context, folder string) (release func(), err error)
}

// An Erasure selects changes to erase: those of a collection before a time.
type Erasure struct {
	Namespace change.Namespace
	// Documents are the canonical forms of _ids (change.AppendCanonical). None are all documents,
	// and the events of the whole collection.
	Documents []string
	Before    change.Timestamp
}

// erases reports whether a change is erased. A rename stays: it has no document, and belongs
// to two collections, whereas the loss in its place would name one.
func (e *Erasure) erases(c *change.Event) bool {
	if c.Time().Compare(e.Before) >= 0 || c.Namespace() != e.Namespace || len(c.ToColl()) > 0 {
		return false
	}
	if len(e.Documents) == 0 {
		return true
	}
	id := c.ID()
	return !id.IsZero() && slices.Contains(e.Documents, string(change.AppendCanonical(nil, id)))
}

// A Forgetting is the outcome of an erasure.
type Forgetting struct {
	// Segments have something to be erased, Changes of them.
	Segments int `json:"segments"`
	Changes  int `json:"changes"`
	// To is the time before which the chain has changes: later ones will be written.
	To change.Timestamp `json:"to"`
	// Unreadable are segments that are damaged and stay as they are.
	Unreadable []Finding `json:"unreadable"`
}

// A forgettingRecord is kept in the store. It does not say which documents were erased.
type forgettingRecord struct {
	At        time.Time `json:"at"`
	By        string    `json:"by"`
	Namespace string    `json:"namespace"`
	Documents int       `json:"documents"` // how many; 0 is all
	Before    time.Time `json:"before"`
	Forgetting
}

// Forget erases changes from all segments of the chain, also from those that have expired. A
// segment that has any is written again without them, under its number and ID, and says in which
// stretch something was erased: its readers get a loss there. A record of the erasure is kept with
// the name of the operator, unless there is nothing to erase. Unless do is true, it only counts.
func (c *Chain) Forget(ctx context.Context, e Erasure, by string, do bool) (f Forgetting, err error) {
	f.Unreadable = []Finding{}
	store, can := c.rewriter()
	if !can {
		return f, ErrImmutable
	}
	if do {
		release, err := store.Hold(ctx, c.prefix)
		if err != nil {
			return f, err
		}
		defer release()
		planned, err := c.Forget(ctx, e, by, false)
		if err != nil || planned.Changes == 0 {
			return planned, err
		}
		if err := c.recordForgetting(ctx, e, by, planned); err != nil {
			return f, err
		}
	}
	all, err := c.list(ctx, c.segments(), 0)
	if err != nil {
		return f, err
	}
	encoder := newEncoder()
	decoder := newDecoder()
	defer decoder.Close()
	for attempt, i := 1, 0; i < len(all); {
		s := all[i]
		r, err := c.without(ctx, s, e, encoder, decoder)
		if err == nil && do && r.erased > 0 {
			err = store.Replace(ctx, c.segment(s.Number), r.data, r.version)
		}
		if (errors.Is(err, ErrChanged) || errors.Is(err, errRewritten)) && attempt < rewriteAttempts { // by somebody else
			attempt++
			continue
		}
		attempt = 1
		i++
		switch {
		case errors.Is(err, ErrNotFound): // it has expired meanwhile
			continue
		case unreadable(err), errors.Is(err, ErrFormat):
			f.Unreadable = append(f.Unreadable, Finding{Segment: s.Number, Problem: err.Error()})
			continue
		case err != nil:
			return f, err
		}
		f.To = later(f.To, r.to)
		if r.erased > 0 {
			f.Segments++
			f.Changes += r.erased
		}
	}
	return f, nil
}

// rewriteAttempts bounds how often a segment is read that others write again.
const rewriteAttempts = 10

// A rewrite is a segment without the erased changes.
type rewrite struct {
	data    []byte
	erased  int              // changes
	to      change.Timestamp // where the segment ends
	version string           // of the object that was read
}

func (c *Chain) forgettings() string { return c.prefix + "/forgotten" }

// Forgettings returns when something was erased from the chain, the earliest time first. It asks no
// store that cannot replace segments.
func (c *Chain) Forgettings(ctx context.Context) (times []time.Time, err error) {
	if _, can := c.rewriter(); !can {
		return nil, nil
	}
	records, err := c.list(ctx, c.forgettings(), 0)
	for _, r := range records {
		times = append(times, time.Unix(0, int64(r.Number)).UTC())
	}
	return times, err
}

// rewriter returns the store if it can replace objects.
func (c *Chain) rewriter() (rewriter, bool) {
	inner, isBounded := c.store.(bounded)
	if !isBounded {
		return nil, false
	}
	store, can := inner.store.(rewriter)
	return store, can
}

// recordForgetting writes a record before anything is erased.
func (c *Chain) recordForgetting(ctx context.Context, e Erasure, by string, planned Forgetting) error {
	now := time.Now().UTC()
	text, err := json.Marshal(forgettingRecord{At: now, By: by, Namespace: e.Namespace.String(), Documents: len(e.Documents), Before: e.Before.Time(), Forgetting: planned})
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if err := c.store.Put(ctx, c.forgettings()+"/"+name(uint64(now.UnixNano())), text); err != nil {
		return fmt.Errorf("record the erasure: %w", err)
	}
	return nil
}

// without returns a segment without the erased changes. It returns an error that wraps errDamaged
// if any part of the segment cannot be read.
func (c *Chain) without(ctx context.Context, s Segment, e Erasure, encoder *zstd.Encoder, decoder *zstd.Decoder) (w rewrite, err error) {
	h, about, err := c.Header(ctx, s.Number)
	w.to = h.To
	w.version = about.Version
	if err != nil || h.From.Compare(e.Before) >= 0 {
		return w, err
	}
	r := newSegmentReader(c.store, c.segment(h.Number), h, decoder, nil)
	if err := r.open(ctx, change.Timestamp{}); err != nil {
		return w, err
	}
	d := newDraft(encoder)
	d.footer.Forgotten = slices.Clone(r.footer.Forgotten)
	span := forgotten{Namespace: e.Namespace.String()}
	for {
		entry, ok, err := r.next(ctx)
		switch {
		case err != nil:
			return w, err
		case !ok:
			if slices.ContainsFunc(r.damaged, func(l oplog.Loss) bool { return l.Reason == gap.Damaged }) {
				return w, fmt.Errorf("%w: a block", errDamaged)
			}
			if w.erased == 0 {
				return w, nil
			}
			d.footer.Forgotten = append(d.footer.Forgotten, span)
			h.Rewritten++
			if h.Written.IsZero() {
				h.Written = about.Modified.UTC()
			}
			w.data, _, err = d.encode(h)
			return w, err
		}
		if entry.loss != nil {
			if err := d.addLoss(entry.loss); err != nil {
				return w, err
			}
			continue
		}
		parsed, err := change.Parse(entry.raw)
		if err != nil {
			return w, fmt.Errorf("%w: %w", errDamaged, err)
		}
		if e.erases(&parsed) {
			if w.erased == 0 {
				span.From = parsed.Time()
			}
			span.To = parsed.Time().Next()
			w.erased++
			continue
		}
		d.add(&parsed)
	}
}

// A forgotten is a stretch of a segment in which changes were erased.
type forgotten struct {
	Namespace string           `json:"namespace"`
	From      change.Timestamp `json:"from"`
	To        change.Timestamp `json:"to"`
}

// loss returns what readers get instead of the changes.
func (f *forgotten) loss() oplog.Loss {
	return oplog.Loss{From: change.At(f.From), To: change.At(f.To), Reason: gap.Forgotten, Namespaces: []string{f.Namespace}, Found: time.Now()}
}

// errRewritten says that a segment was written again while it was read.
var errRewritten = errors.New("segment was rewritten")

// rewritten returns errRewritten if the segment was written again since its header was read, and
// otherwise the error with which reading failed.
func (r *segmentReader) rewritten(ctx context.Context, err error) error {
	if !errors.Is(err, errDamaged) {
		return err
	}
	h, _, failed := readHeader(ctx, r.store, r.key)
	if failed == nil && h.ID == r.header.ID && h.Rewritten != r.header.Rewritten {
		return errRewritten
	}
	return err
}
