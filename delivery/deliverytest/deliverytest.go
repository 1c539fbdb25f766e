package deliverytest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/match"
)

// Compile compiles a filter.
func Compile(t *testing.T, f match.Filter) *match.Program {
	t.Helper()
	f.Carries.Document = true
	p, err := match.Compile(f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Everything is a subscription without a filter.
func Everything(t *testing.T) []delivery.Subscription {
	return []delivery.Subscription{{ID: "all", Program: Compile(t, match.Filter{})}}
}

// Receive receives batches until they have the given number of events and losses, without
// acknowledging them.
func Receive(t *testing.T, s *delivery.Session, n int) (batches []*delivery.Batch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for got := 0; got < n; {
		more, _, err := s.Receive(ctx)
		if err != nil {
			t.Fatalf("after %d of %d: %v", got, n, err)
		}
		for _, b := range more {
			got += len(b.Events)
			if b.Loss != nil {
				got++
			}
		}
		batches = append(batches, more...)
	}
	return batches
}

// Refs returns what the batches hold: the Refs of events, and losses as text.
func Refs(batches []*delivery.Batch) (all []string) {
	for _, b := range batches {
		if b.Loss != nil {
			all = append(all, fmt.Sprintf("%s %s %s–%s", b.Loss.Kind, b.Loss.Reason, b.Loss.From, b.Loss.To))
		}
		for _, e := range b.Events {
			all = append(all, fmt.Sprintf("%x", e.Ref.Append(nil)))
		}
	}
	return all
}

// Wanted returns what Refs returns of batches with these events.
func Wanted(events []changetest.Event) (all []string) {
	for _, e := range events {
		all = append(all, fmt.Sprintf("%x", e.Position().Ref().Append(nil)))
	}
	return all
}

// Inserts returns n inserts of documents with consecutive numbers as _id.
func Inserts(n int, from int64) []changetest.Event {
	events := make([]changetest.Event, n)
	for i := range events {
		events[i].ID = from + int64(i)
	}
	return events
}

// Equal fails the test unless two lists are equal.
func Equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %d entries, want %d:\n%v\nwant\n%v", what, len(got), len(want), got, want)
	}
}

// Last returns the last batch.
func Last(batches []*delivery.Batch) *delivery.Batch { return batches[len(batches)-1] }
