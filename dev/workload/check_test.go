package workload

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// line is an event of a change of an order or a customer.
func line(op, coll string, id, rev int64) []byte {
	switch op {
	case "delete":
		return fmt.Appendf(nil, `{"operationType":"delete","ns":{"coll":%q},"documentKey":{"_id":%d}}`, coll, id)
	case "update":
		return fmt.Appendf(nil, `{"operationType":"update","ns":{"coll":%q},"documentKey":{"_id":%d},"updateDescription":{"updatedFields":{"rev":%d}},"fullDocument":{"rev":99}}`, coll, id, rev)
	default:
		return fmt.Appendf(nil, `{"operationType":%q,"ns":{"coll":%q},"documentKey":{"_id":%d},"fullDocument":{"rev":%d}}`, op, coll, id, rev)
	}
}

func TestCheckTellsWhatIsWrong(t *testing.T) {
	l := &Ledger{}
	sent := time.Now()
	one, two, other := key{"orders", 1}, key{"orders", 2}, key{"customers", 1}
	for _, w := range []written{{key: one, seq: 1}, {key: one, seq: 2}, {key: one, seq: 3, deleted: true}, {key: two, seq: 1}, {key: two, seq: 2}, {key: other, seq: 1}} {
		l.begin(w, sent)
		l.acknowledge([]written{w})
	}
	c := NewCheck(l)
	if c.Missing() != 6 {
		t.Errorf("%d missing of 6", c.Missing())
	}
	take := func(line []byte, latency time.Duration) {
		t.Helper()
		if took, err := c.Timed(line, sent.Add(latency)); err != nil || took != latency {
			t.Errorf("%s: %v, %v", line, took, err)
		}
	}
	take(line("update", "orders", 1, 2), time.Millisecond) // before its insert
	take(line("insert", "orders", 1, 1), 3*time.Millisecond)
	take(line("delete", "orders", 1, 0), 2*time.Millisecond)
	take(line("update", "orders", 1, 2), time.Millisecond) // again
	take(line("insert", "orders", 2, 1), 2*time.Millisecond)
	take(line("insert", "customers", 1, 1), 2*time.Millisecond) // of the same number as an order
	if n := c.Overdue(sent); n != 0 {
		t.Errorf("%d overdue of what was sent later", n)
	}
	if n := c.Overdue(sent.Add(1)); n != 1 {
		t.Errorf("%d overdue of what was sent before", n)
	}
	if p50, p99 := c.Latency(); p50 != 2 || p99 != 3 {
		t.Errorf("latency %g and %g", p50, p99)
	}
	want := Report{Written: 6, Delivered: 5, Missing: 1, OutOfOrder: 1, Duplicates: 1, P50: 2, P99: 3}
	if got := c.Report(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, wrong := range [][]byte{
		line("delete", "orders", 2, 0), line("insert", "orders", 3, 1), line("update", "orders", 2, 3), line("insert", "carts", 1, 1), line("insert", "orders", 1, 0),
	} {
		if err := c.JSON(wrong, sent); !errors.Is(err, errNotOurs) {
			t.Errorf("%s, which nobody wrote: %v", wrong, err)
		}
	}
}

func TestNothingArrivesThatDoesNotCountAsWritten(t *testing.T) {
	l := &Ledger{}
	c := NewCheck(l)
	order := key{"orders", 1}
	l.begin(written{key: order, seq: 1}, time.Now())
	c.arrived(order, 1, time.Millisecond) // before MongoDB has acknowledged it
	if r := c.Report(); r.Delivered != 1 || r.Written != 1 || r.Missing != 0 {
		t.Errorf("%+v", r)
	}
	l.begin(written{key: order, seq: 2}, time.Now()) // and is never acknowledged
	if r := c.Report(); r.Written != 2 || r.Missing != 0 {
		t.Errorf("%+v", r)
	}
}
