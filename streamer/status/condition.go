package status

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
)

// A Condition is what a consumer tells of itself. Its zero value is that of one that has yet to do something; it may be told and read
// from anywhere.
type Condition struct {
	events     atomic.Int64  // that have passed
	last       atomic.Int64  // when the last one did, in nanoseconds since 1970
	remembered atomic.Int64  // events in the window
	rate       atomic.Uint64 // events a second, as bits of a float
	counted    atomic.Int64  // events at the last beat
	recovering atomic.Bool
	told       atomic.Pointer[change.Position] // the end of the last loss that the subscribers were told of
	failure    atomic.Pointer[error]           // why the consumer has ended for good
}

// Passed notes events that have passed, and how many the window remembers.
func (c *Condition) Passed(n int, at time.Time, remembered int) {
	if n > 0 {
		c.events.Add(int64(n))
		c.last.Store(at.UnixNano())
	}
	c.remembered.Store(int64(remembered))
}

// Recovering notes whether the consumer deals with a span that was or may have been missed.
func (c *Condition) Recovering(on bool) { c.recovering.Store(on) }

// Told notes that subscribers have been told of a loss that ends at the position.
func (c *Condition) Told(to change.Position) { c.told.Store(&to) }

// Fail notes why the consumer has ended for good.
func (c *Condition) Fail(err error) { c.failure.Store(&err) }

// rateWindow is the time over which rates are smoothed.
const rateWindow = 5.0 // seconds

// Beat takes the rate. It is called every second.
func (c *Condition) Beat() {
	now, rate := c.events.Load(), c.Rate()
	rate += (float64(now-c.counted.Swap(now)) - rate) / rateWindow
	c.rate.Store(math.Float64bits(rate))
}

// Rate is the recent number of events a second.
func (c *Condition) Rate() float64 { return math.Float64frombits(c.rate.Load()) }
