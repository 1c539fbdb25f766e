package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// changeEvent makes a change event as MongoDB does of the benchmark's changes.
func changeEvent(t testing.TB, id, seq, at int64) []byte {
	t.Helper()
	changed := bson.D{{Key: "at", Value: at}, {Key: "payload", Value: "xxxx"}, {Key: "seq", Value: seq}}
	event := bson.D{{Key: "_id", Value: bson.D{{Key: "_data", Value: "82AB"}}}, {Key: "operationType", Value: "update"}}
	if seq == 1 {
		event = append(event, bson.E{Key: "fullDocument", Value: append(bson.D{{Key: "_id", Value: id}}, changed...)})
	} else {
		event = append(event, bson.E{Key: "updateDescription", Value: bson.D{{Key: "updatedFields", Value: changed}}})
	}
	raw, err := bson.Marshal(append(event, bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}}))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestCheckTakesOnlyEveryChangeInItsPlace(t *testing.T) {
	type change struct{ id, seq int64 }
	for _, tt := range []struct {
		name    string
		want    int
		changes []change
		fault   string
	}{
		{"everything in order", 5, []change{{1, 1}, {2, 1}, {1, 2}, {1, 3}, {2, 2}}, ""},
		{"one is dropped", 5, []change{{1, 1}, {2, 1}, {1, 3}, {2, 2}}, "change 3 of document 1 came after change 1"},
		{"the last is dropped", 5, []change{{1, 1}, {2, 1}, {1, 2}, {1, 3}}, "4 of 5 changes have come"},
		{"two are swapped", 4, []change{{1, 1}, {2, 1}, {1, 3}, {1, 2}}, "change 3 of document 1 came after change 1"},
		{"one comes twice", 4, []change{{1, 1}, {2, 1}, {2, 1}, {1, 2}}, "change 1 of document 2 came after change 1"},
		{"somebody else's", 1, []change{{9, 1}}, "a change of document 9, which is none of the benchmark's"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, arrived := newDeliveryCheck(tt.want, 2, true), time.Unix(10, 0)
			for i, ch := range tt.changes {
				c.event(changeEvent(t, ch.id, ch.seq, arrived.Add(time.Duration(i-10)*time.Millisecond).UnixNano()), arrived)
			}
			if got := c.failure(); got != tt.fault {
				t.Errorf("fault %q, want %q", got, tt.fault)
			}
			if done := c.done(); done != (tt.fault != "4 of 5 changes have come") {
				t.Errorf("done %v", done)
			}
			if tt.fault == "" {
				if p50, p99 := quantiles(c.delays); p50 != 8 || p99 != 10 {
					t.Errorf("delays of %v and %v ms", p50, p99)
				}
			}
		})
	}
}

func TestCheckReadsText(t *testing.T) {
	c, arrived := newDeliveryCheck(2, 2, true), time.Unix(10, 0)
	for seq := range int64(2) {
		c.text(fmt.Appendf(nil, `{"id":"x","operationType":"update","documentKey":{"_id":2},"updateDescription":{"updatedFields":{"at":%d,"seq":%d}}}`,
			arrived.Add(-time.Millisecond).UnixNano(), seq+1), arrived)
	}
	if p50, _ := quantiles(c.delays); !c.done() || c.failure() != "" || p50 != 1 {
		t.Errorf("done %v, fault %q, %v ms", c.done(), c.failure(), p50)
	}
	if c.text([]byte(`{"_id":7}`), arrived); c.failure() == "" {
		t.Error("text without numbers is taken")
	}
}

func TestCheckRefusesWhatItDoesNotKnow(t *testing.T) {
	c := newDeliveryCheck(1, 1, false)
	c.event([]byte("\x05\x00\x00\x00\x00"), time.Now())
	if c.failure() == "" || !c.done() {
		t.Error("an event without numbers is taken")
	}
}

func FuzzEventAndReply(f *testing.F) {
	f.Add(changeEvent(f, 1, 1, 5))
	_, array, err := bson.MarshalValue(bson.A{bson.D{{Key: "a", Value: 1}}, bson.D{}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(array)
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := newDeliveryCheck(10, 10, false)
		c.event(changeEvent(t, 1, 1, 5), time.Time{})
		c.event(raw, time.Time{})
		for event := range elements(raw) {
			c.event(event, time.Time{})
		}
		c.text(raw, time.Time{})
	})
}

func TestElementsAreThoseOfTheArray(t *testing.T) {
	want := [][]byte{changeEvent(t, 1, 1, 0), changeEvent(t, 2, 1, 0)}
	array := bson.A{}
	for _, raw := range want {
		array = append(array, bson.Raw(raw))
	}
	_, raw, err := bson.MarshalValue(array)
	if err != nil {
		t.Fatal(err)
	}
	var got [][]byte
	for event := range elements(raw) {
		got = append(got, event)
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%d elements, want %d", len(got), len(want))
	}
}
