package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
)

// A deliveryCheck checks the changes that a contender gets. It belongs to one goroutine at a time.
type deliveryCheck struct {
	want, seen int
	last       []int64 // by document, the number of its last change
	fault      string
	began      int64           // when the first change was made
	delays     []time.Duration // nil where they are not wanted
	places     map[int]places  // by the length of an event
}

// newDeliveryCheck returns a check of want changes, of documents that are numbered from 1.
func newDeliveryCheck(want, documents int, delays bool) *deliveryCheck {
	c := &deliveryCheck{want: want, last: make([]int64, documents+1), places: make(map[int]places)}
	if delays {
		c.delays = make([]time.Duration, 0, want)
	}
	return c
}

// done reports whether all changes have arrived, or a wrong one.
func (c *deliveryCheck) done() bool { return c.seen >= c.want || c.fault != "" }

// failure returns a description of the failure, "" for none.
func (c *deliveryCheck) failure() string {
	if c.fault == "" && c.seen != c.want {
		return fmt.Sprintf("%d of %d changes have come", c.seen, c.want)
	}
	return c.fault
}

// event checks a change event in BSON.
func (c *deliveryCheck) event(raw []byte, arrived time.Time) {
	p, ok := c.find(raw)
	if !ok {
		c.fault = "an event is not of the benchmark's form"
		return
	}
	c.change(number(raw, p.id), number(raw, p.seq), number(raw, p.at), arrived)
}

// text checks a change event in JSON.
func (c *deliveryCheck) text(text []byte, arrived time.Time) {
	id, hasID := textNumber(text, `"_id":`)
	seq, hasSeq := textNumber(text, `"seq":`)
	at, hasAt := textNumber(text, `"at":`)
	if !hasID || !hasSeq || !hasAt {
		c.fault = "an event is not of the benchmark's form"
		return
	}
	c.change(id, seq, at, arrived)
}

// textNumber reads the number after a name.
func textNumber(text []byte, name string) (n int64, ok bool) {
	i := bytes.Index(text, []byte(name))
	if i < 0 {
		return 0, false
	}
	for _, digit := range text[i+len(name):] {
		if digit < '0' || digit > '9' {
			break
		}
		n = n*10 + int64(digit-'0')
		ok = true
	}
	return n, ok
}

// change checks a change: the document, the number of the change, and its time in nanoseconds since
// 1970.
func (c *deliveryCheck) change(id, seq, at int64, arrived time.Time) {
	switch {
	case id < 1 || id >= int64(len(c.last)):
		c.fault = fmt.Sprintf("a change of document %d, which is none of the benchmark's", id)
		return
	case seq != c.last[id]+1 && c.fault == "":
		c.fault = fmt.Sprintf("change %d of document %d came after change %d", seq, id, c.last[id])
	}
	c.last[id] = seq
	if c.seen == 0 {
		c.began = at
	}
	c.seen++
	if c.delays != nil {
		c.delays = append(c.delays, arrived.Sub(time.Unix(0, at)))
	}
}

// places are the offsets of the numbers in an event.
type places struct{ id, seq, at int }

// The fields in BSON: a 64-bit integer, its name, and a zero.
const (
	idField  = "\x12_id\x00"
	seqField = "\x12seq\x00"
	atField  = "\x12at\x00"
)

// find finds the numbers in an event, first at their offsets in the last event of the same length.
func (c *deliveryCheck) find(raw []byte) (places, bool) {
	if p, ok := c.places[len(raw)]; ok && p.hold(raw) {
		return p, true
	}
	p, ok := find(raw)
	if ok {
		c.places[len(raw)] = p
	}
	return p, ok
}

// find finds the numbers in an event. Every _id in it is the document's.
func find(raw []byte) (p places, ok bool) {
	for field, place := range map[string]*int{idField: &p.id, seqField: &p.seq, atField: &p.at} {
		i := bytes.Index(raw, []byte(field))
		if i < 0 || i+len(field)+8 > len(raw) {
			return p, false
		}
		*place = i + len(field)
	}
	return p, true
}

// hold reports whether an event has its numbers at the same offsets.
func (p places) hold(raw []byte) bool {
	return string(raw[p.id-len(idField):p.id]) == idField && string(raw[p.seq-len(seqField):p.seq]) == seqField &&
		string(raw[p.at-len(atField):p.at]) == atField
}

func number(raw []byte, at int) int64 { return int64(binary.LittleEndian.Uint64(raw[at:])) }

// p99 returns the 99th percentile in milliseconds.
func p99(delays []time.Duration) float64 {
	_, last := quantiles(delays)
	return last
}

// Quantiles returns the median and the 99th percentile in milliseconds.
func quantiles(delays []time.Duration) (p50, p99 float64) {
	if len(delays) == 0 {
		return 0, 0
	}
	slices.Sort(delays)
	at := func(q float64) float64 { return delays[int(math.Ceil(q*float64(len(delays))))-1].Seconds() * 1000 }
	return at(0.50), at(0.99)
}
