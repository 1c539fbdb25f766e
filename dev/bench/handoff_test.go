package main

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/client"
)

// made makes a change of a document as MongoDB tells of it.
func made(t *testing.T, p uint32, id, seq int64, at time.Time) client.Change {
	t.Helper()
	fields := bson.D{{Key: "seq", Value: seq}, {Key: "at", Value: at.UnixNano()}}
	event := bson.D{{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}}}
	if seq == 1 {
		event = append(event, bson.E{Key: "fullDocument", Value: append(bson.D{{Key: "_id", Value: id}}, fields...)})
	} else {
		event = append(event, bson.E{Key: "updateDescription", Value: bson.D{{Key: "updatedFields", Value: fields}}})
	}
	raw, err := bson.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	return client.Change{Partition: p, Data: raw}
}

func TestOnlyWhatChangedHandsIsCountedAndOnlyWhileItIsWatched(t *testing.T) {
	c := newPauses(2)
	now := time.Now()
	for _, taken := range []client.Change{made(t, 5, 1, 1, now.Add(-time.Hour)), made(t, 6, 2, 1, now.Add(-time.Hour))} {
		if err := c.take(taken); err != nil {
			t.Fatal(err)
		}
	}
	c.watch()
	for _, taken := range []client.Change{
		made(t, 5, 1, 2, now.Add(-time.Minute)), made(t, 5, 1, 3, now.Add(-time.Second)), made(t, 6, 2, 2, now.Add(-2*time.Minute)),
	} {
		if err := c.take(taken); err != nil {
			t.Fatal(err)
		}
	}
	delays := c.watched(map[change.Partition]bool{5: true, 7: true})
	if len(delays) != 1 || delays[0] < time.Minute || delays[0] > 2*time.Minute {
		t.Errorf("%v", delays)
	}
	if whole, err := c.has([]int64{0, 3, 2}); !whole || err != nil {
		t.Errorf("%t, %v", whole, err)
	}
	if whole, err := c.has([]int64{0, 3, 3}); whole || err != nil {
		t.Errorf("one is missing: %t, %v", whole, err)
	}
}

func TestWhatIsMissingRepeatedOrStrangeIsFound(t *testing.T) {
	now := time.Now()
	for name, changes := range map[string][]client.Change{
		"missing":   {made(t, 0, 1, 1, now), made(t, 0, 1, 3, now)},
		"repeated":  {made(t, 0, 1, 1, now), made(t, 0, 1, 1, now)},
		"reordered": {made(t, 0, 1, 2, now), made(t, 0, 1, 1, now)},
	} {
		c := newPauses(1)
		for _, taken := range changes {
			if err := c.take(taken); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.has(nil); err == nil {
			t.Errorf("%s: nothing is wrong", name)
		}
	}
	c := newPauses(1)
	for name, taken := range map[string]client.Change{
		"of nobody": made(t, 0, 2, 1, now), "no document": {Data: bson.Raw{5, 0, 0, 0, 0}}, "no event": {Data: []byte("x")},
	} {
		if c.take(taken) == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
