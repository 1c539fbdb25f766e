package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// A Check compares what arrives with a ledger. It may be used from several goroutines.
type Check struct {
	ledger *Ledger

	mu        sync.Mutex
	documents map[int64]*arrivals
	report    Report
	latencies []time.Duration // of what arrived for the first time
}

// arrivals is what has arrived of one document: every change up to the number whole, and those
// above it that came too early.
type arrivals struct {
	whole int64
	early map[int64]bool
}

// A Report is the outcome of a Check.
type Report struct {
	Written    int     `json:"written"`      // sent to MongoDB
	Delivered  int     `json:"delivered"`    // changes that arrived, each counted once
	Missing    int     `json:"missing"`      // acknowledged by MongoDB and not arrived
	OutOfOrder int     `json:"out_of_order"` // arrived before an earlier change of the same document
	Duplicates int     `json:"duplicates"`   // arrived again
	P50        float64 `json:"p50_ms"`       // from the write's sending to the arrival
	P99        float64 `json:"p99_ms"`
}

// NewCheck makes a Check against the ledger.
func NewCheck(ledger *Ledger) *Check {
	return &Check{ledger: ledger, documents: make(map[int64]*arrivals)}
}

// errNotOurs says that an event is none of the workload.
var errNotOurs = errors.New("not an event of the workload")

// JSON takes an event in the form in which a node writes it as text.
func (c *Check) JSON(line []byte, now time.Time) error {
	_, err := c.Timed(line, now)
	return err
}

// Timed does what JSON does, and returns how long the event took from its writing, 0 where it does
// not tell.
func (c *Check) Timed(line []byte, now time.Time) (took time.Duration, err error) {
	e, f, err := parse(line)
	switch {
	case err != nil:
		return 0, err
	case f.Seq == 0:
		return 0, c.deletion(e.Key.ID)
	}
	took = now.Sub(time.Unix(0, f.At))
	c.arrived(e.Key.ID, f.Seq, took)
	return took, nil
}

// A fields is what the workload writes into documents. The zero value stands for a deletion.
type fields struct {
	Seq int64 `json:"seq"`
	At  int64 `json:"at"`
}

// An event is what a node writes of a change, or of a document of a snapshot.
type event struct {
	Op  string `json:"operationType"`
	Key struct {
		ID int64 `json:"_id"`
	} `json:"documentKey"`
	Full   fields `json:"fullDocument"`
	Update struct {
		Set fields `json:"updatedFields"`
	} `json:"updateDescription"`
}

// parse reads an event, and what the change itself has written.
func parse(line []byte) (e event, own fields, err error) {
	if err := json.Unmarshal(line, &e); err != nil {
		return e, own, fmt.Errorf("read event: %w", err)
	}
	switch e.Op {
	case "delete", left:
		return e, own, nil
	case "update":
		own = e.Update.Set
	default:
		own = e.Full
	}
	if own.Seq == 0 {
		return e, own, fmt.Errorf("%w: %s", errNotOurs, line)
	}
	return e, own, nil
}

// deletion takes a delete event, which has no number of its own; the ledger knows it.
func (c *Check) deletion(id int64) error {
	seq, ok := c.ledger.ending(id)
	if !ok {
		return fmt.Errorf("%w: deletion of %d, which nobody deleted", errNotOurs, id)
	}
	c.arrived(id, seq, -1)
	return nil
}

func (c *Check) arrived(id, seq int64, latency time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.documents[id]
	if d == nil {
		d = &arrivals{}
		c.documents[id] = d
	}
	if seq <= d.whole || d.early[seq] {
		c.report.Duplicates++
		return
	}
	c.report.Delivered++
	if latency >= 0 {
		c.latencies = append(c.latencies, latency)
	}
	if seq > d.whole+1 {
		c.report.OutOfOrder++
		if d.early == nil {
			d.early = make(map[int64]bool)
		}
		d.early[seq] = true
		return
	}
	for d.whole = seq; d.early[d.whole+1]; d.whole++ {
		delete(d.early, d.whole+1)
	}
}

// Missing returns how many acknowledged changes have not arrived.
func (c *Check) Missing() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	missing := 0
	c.ledger.each(func(id, acked int64) {
		d := c.documents[id]
		if d == nil {
			missing += int(acked)
			return
		}
		for seq := d.whole + 1; seq <= acked; seq++ {
			if !d.early[seq] {
				missing++
			}
		}
	})
	return missing
}

// Delivered returns how many changes have arrived, and how many came again.
func (c *Check) Delivered() (delivered, duplicates int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report.Delivered, c.report.Duplicates
}

// Report returns the outcome so far.
func (c *Check) Report() Report {
	missing := c.Missing()
	c.mu.Lock()
	r := c.report
	slices.Sort(c.latencies)
	r.P50, r.P99 = quantile(c.latencies, 0.50), quantile(c.latencies, 0.99)
	c.mu.Unlock()
	r.Missing, r.Written = missing, c.ledger.Written() // after what has arrived: nothing arrives that was not written
	return r
}

// quantile returns a quantile of sorted durations in milliseconds, to the microsecond.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	d := sorted[int(math.Ceil(q*float64(len(sorted))))-1]
	return float64(d.Microseconds()) / 1000
}
