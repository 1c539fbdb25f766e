package workload

import (
	"testing"
	"time"
)

func TestCheckTellsWhatIsWrong(t *testing.T) {
	l := &Ledger{}
	for _, w := range []written{{id: 1, seq: 1}, {id: 1, seq: 2}, {id: 1, seq: 3, deleted: true}, {id: 2, seq: 1}, {id: 2, seq: 2}} {
		l.begin(w)
		l.acknowledge([]written{w})
	}
	c := NewCheck(l)
	if c.Missing() != 5 {
		t.Errorf("%d missing of 5", c.Missing())
	}
	c.arrived(1, 2, time.Millisecond) // before its insert
	c.arrived(1, 1, 3*time.Millisecond)
	if err := c.deletion(1); err != nil {
		t.Error(err)
	}
	c.arrived(1, 2, time.Millisecond)
	c.arrived(2, 1, 2*time.Millisecond)
	want := Report{Written: 5, Delivered: 4, Missing: 1, OutOfOrder: 1, Duplicates: 1, P50: 2, P99: 3}
	if got := c.Report(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if err := c.deletion(2); err == nil {
		t.Error("a deletion that nobody made is accepted")
	}
}

func TestNothingArrivesThatDoesNotCountAsWritten(t *testing.T) {
	l := &Ledger{}
	c := NewCheck(l)
	l.begin(written{id: 1, seq: 1})
	c.arrived(1, 1, time.Millisecond) // before MongoDB has acknowledged it
	if r := c.Report(); r.Delivered != 1 || r.Written != 1 || r.Missing != 0 {
		t.Errorf("%+v", r)
	}
	l.begin(written{id: 1, seq: 2}) // and is never acknowledged
	if r := c.Report(); r.Written != 2 || r.Missing != 0 {
		t.Errorf("%+v", r)
	}
}
