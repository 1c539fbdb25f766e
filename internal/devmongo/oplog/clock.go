package oplog

import (
	"sync/atomic"
	"time"
)

// clock hands out cluster times: seconds in the high half, a counter from 1 in the low half.
type clock struct {
	now    func() time.Time
	offset atomic.Int64  // nanoseconds added to the wall clock
	last   atomic.Uint64 // the newest time handed out
}

func (c *clock) wall() time.Time { return c.now().Add(time.Duration(c.offset.Load())) }

// reserve hands out n times in a row and returns the first. Only one caller at a time.
func (c *clock) reserve(n int, wall time.Time) uint64 {
	last := c.last.Load()
	first := last + 1
	if second := uint64(max(wall.Unix(), 1)); second > last>>32 {
		first = second<<32 | 1
	}
	c.last.Store(first + uint64(n) - 1)
	return first
}
