package checkpoint

import "github.com/mongostream/streamer/change"

// A Lapse says that streams of before read changes that a later one did not, which moved the
// checkpoint past them.
type Lapse struct {
	// Coverage is the coverage until then.
	Coverage change.Coverage
	// At is the last time up to which all of it was read.
	At change.Timestamp
}

// Lost returns the span that the subscriber of a checkpoint missed because a stream did not read
// it, if a stream with the coverage reads it again: the namespaces, empty for all, and the start of
// the span; it ends at the checkpoint. some is false if there is none.
func (c Checkpoint) Lost(reads change.Coverage) (namespaces []string, from change.Timestamp, some bool) {
	if c.Lapse == nil || c.Coverage == nil {
		return nil, from, false
	}
	namespaces, some = reads.Bounded().Dropped(c.Lapse.Coverage, *c.Coverage)
	return namespaces, c.Lapse.At, some
}

// cover notes in a merged checkpoint, whose position has moved, what its streams read: before is
// the stored checkpoint, by the one that was saved over it.
func (c *Checkpoint) cover(before, by Checkpoint) {
	lapse := before.Lapse
	c.Coverage = by.Coverage
	c.Lapse = lapse
	if by.Coverage == nil { // of an earlier version, or a test: unknown
		c.Coverage = before.Coverage
		return
	}
	isKnown := lapse != nil && by.Lapse != nil && by.Lapse.At == lapse.At
	if isKnown && by.Coverage.Covers(lapse.Coverage) {
		lapse = nil // the subscriber has acknowledged the loss
	}
	if before.Coverage != nil && !by.Coverage.Covers(*before.Coverage) {
		further := Lapse{Coverage: *before.Coverage, At: before.Earliest().Time}
		if lapse != nil {
			further.Coverage = *further.Coverage.Union(lapse.Coverage).Bounded()
			if further.At.Compare(lapse.At) > 0 {
				further.At = lapse.At
			}
		}
		lapse = &further
	}
	c.Lapse = lapse
}
