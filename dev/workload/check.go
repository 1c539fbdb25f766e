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
	documents map[key]*arrivals
	report    Report
	latencies []time.Duration // of first arrivals, in their order
}

// arrivals tracks the changes of one document: every change up to the number whole has arrived, and
// those above it that came too early.
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
	return &Check{ledger: ledger, documents: make(map[key]*arrivals)}
}

// errNotOurs says that an event is none of the workload.
var errNotOurs = errors.New("not an event of the workload")

// JSON takes an event in the form in which a node writes it as text.
func (c *Check) JSON(line []byte, now time.Time) error {
	_, err := c.Timed(line, now)
	return err
}

// Timed does what JSON does, and returns how long the event took from its writing.
func (c *Check) Timed(line []byte, now time.Time) (took time.Duration, err error) {
	e, f, err := parse(line)
	if err != nil {
		return 0, err
	}
	k := key{e.NS.Coll, e.Key.ID}
	if f.Seq == 0 { // a deletion has no number of its own; the ledger knows it
		var deleted bool
		if f.Seq, deleted = c.ledger.ending(k); !deleted {
			return 0, fmt.Errorf("%w: deletion of %v, which nobody deleted", errNotOurs, k)
		}
	}
	sent, known := c.ledger.sent(k, f.Seq)
	if !known {
		return 0, fmt.Errorf("%w: nobody wrote change %d of %v", errNotOurs, f.Seq, k)
	}
	took = now.Sub(sent)
	c.arrived(k, f.Seq, took)
	return took, nil
}

// A fields has the fields of documents that the check reads. The zero value means a deletion.
type fields struct {
	Seq int64 `json:"rev"`
}

// An event is a node's output for a change, or for a document of a snapshot.
type event struct {
	Op string `json:"operationType"`
	NS struct {
		Coll string `json:"coll"`
	} `json:"ns"`
	Key struct {
		ID int64 `json:"_id"`
	} `json:"documentKey"`
	Full   fields `json:"fullDocument"`
	Update struct {
		Set fields `json:"updatedFields"`
	} `json:"updateDescription"`
}

// parse reads an event, and the fields that the change itself has written.
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

func (c *Check) arrived(k key, seq int64, latency time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.documents[k]
	if d == nil {
		d = &arrivals{}
		c.documents[k] = d
	}
	if seq <= d.whole || d.early[seq] {
		c.report.Duplicates++
		return
	}
	c.report.Delivered++
	c.latencies = append(c.latencies, latency)
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
func (c *Check) Missing() int { return c.missing(func(time.Time) bool { return true }) }

// Overdue returns how many of the acknowledged changes that were sent before a time have not
// arrived.
func (c *Check) Overdue(before time.Time) int { return c.missing(before.After) }

// missing counts the acknowledged changes that have not arrived and were sent at a time that
// counts.
func (c *Check) missing(counts func(sent time.Time) bool) (missing int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.each(func(k key, acked int64, sent []time.Time) {
		d := c.documents[k]
		if d == nil {
			d = &arrivals{}
		}
		for seq := d.whole + 1; seq <= acked; seq++ {
			if !d.early[seq] && counts(sent[seq-1]) {
				missing++
			}
		}
	})
	return missing
}

// recent is how many of the last latencies Latency takes.
const recent = 1000

// Latency returns the quantiles of the last changes in milliseconds, as Report does of all.
func (c *Check) Latency() (p50, p99 float64) {
	c.mu.Lock()
	last := slices.Clone(c.latencies[max(0, len(c.latencies)-recent):])
	c.mu.Unlock()
	slices.Sort(last)
	return quantile(last, 0.50), quantile(last, 0.99)
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
	sorted := slices.Sorted(slices.Values(c.latencies))
	c.mu.Unlock()
	r.P50 = quantile(sorted, 0.50)
	r.P99 = quantile(sorted, 0.99)
	r.Missing, r.Written = missing, c.ledger.Written() // after the arrivals: nothing arrives that was not written
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
