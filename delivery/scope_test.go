package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// A retainedLog has its old changes in lanes: who reads some namespaces gets nothing else of them.
type retainedLog struct {
	*oplogtest.Log

	until  change.Timestamp
	damage *oplog.Loss // comes first in streams that begin before its end
	scopes *[]oplog.Scope
}

func (r retainedLog) Open(ctx context.Context, from change.Position) (oplog.Stream, error) {
	stream, _, err := r.OpenNarrow(ctx, from, nil, false)
	return stream, err
}

func (r retainedLog) OpenNarrow(ctx context.Context, from change.Position, scope oplog.Scope, _ bool) (oplog.Stream, bool, error) {
	stream, err := r.Log.Open(ctx, from)
	if err != nil || from.IsZero() || from.Time.Compare(r.until) >= 0 {
		return stream, false, err
	}
	*r.scopes = append(*r.scopes, scope)
	return &retainedStream{Stream: stream, scope: scope, damage: r.damage}, true, nil
}

type retainedStream struct {
	oplog.Stream

	scope  oplog.Scope
	damage *oplog.Loss
}

func (s *retainedStream) Next(ctx context.Context) (oplog.Reply, error) {
	if loss := s.damage; loss != nil {
		s.damage = nil
		return oplog.Reply{Loss: loss, Retained: true}, nil
	}
	reply, err := s.Stream.Next(ctx)
	reply.Retained = true
	reply.Events = slices.DeleteFunc(reply.Events, func(raw []byte) bool {
		e, err := change.Parse(raw)
		return err == nil && !s.scope.Concerns(e.Namespace().String())
	})
	return reply, err
}

// mixed returns changes of two collections in turn.
func mixed(n int) (events []changetest.Event) {
	for i := range n {
		events = append(events, changetest.Event{ID: int64(i), Coll: fmt.Sprint("c", i%2)})
	}
	return events
}

func of(events []changetest.Event, colls ...string) (found []changetest.Event) {
	for _, e := range events {
		if slices.Contains(colls, e.Coll) {
			found = append(found, e)
		}
	}
	return found
}

func subscribe(t *testing.T, coll string) delivery.Subscription {
	t.Helper()
	return delivery.Subscription{ID: coll, Program: deliverytest.Compile(t, match.Filter{DB: "shop", Coll: coll})}
}

// A session reads only its collections where the log has lanes, also one whose client names its
// place by a Ref, and gets everything of a collection from where it subscribes to it.
func TestSessionsReadTheirLanesAndGetWhatTheySubscribeToLater(t *testing.T) {
	for _, place := range []string{"position", "ref"} {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &oplogtest.Log{ReplyEvents: 10}
				old := log.Append(mixed(400)...)
				var scopes []oplog.Scope
				b := beginThrough(t, log, retainedLog{Log: log, until: old[len(old)-1].Time, scopes: &scopes}, delivery.Config{})
				defer b.end()
				start := delivery.Place{At: old[9].Position()}
				if place == "ref" {
					start = delivery.Place{Ref: old[9].Position().Ref()}
				}
				s := b.open(delivery.SessionConfig{Start: start, CreditEvents: 10}, []delivery.Subscription{subscribe(t, "c0")})
				first := deliverytest.Receive(t, s, 10)
				from := s.Subscribe([]delivery.Subscription{subscribe(t, "c1")})
				batches := first
				want := of(old[10:], "c0")
				for _, e := range of(old, "c1") {
					if e.Position().After(from) {
						want = append(want, e)
					}
				}
				slices.SortFunc(want, func(a, b changetest.Event) int { return a.Position().Compare(b.Position()) })
				for len(deliverytest.Refs(batches)) < len(want) {
					for _, batch := range first {
						if _, err := s.Ack(batch.Seq); err != nil {
							t.Fatal(err)
						}
					}
					first = deliverytest.Receive(t, s, 1)
					batches = append(batches, first...)
				}
				deliverytest.Equal(t, "both", deliverytest.Refs(batches), deliverytest.Wanted(want))
				if len(scopes[len(scopes)-1]) != 2 || place == "position" && len(scopes[0]) != 1 {
					t.Errorf("read %v", scopes)
				}
			})
		})
	}
}

// A damaged block is a loss for subscribers of its collections, and for nobody else.
func TestDamageOfOthersIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &oplogtest.Log{}
		old := log.Append(mixed(40)...)
		damage := &oplog.Loss{From: change.At(old[10].Time), To: change.At(old[12].Time), Reason: gap.Damaged, Namespaces: []string{"shop.c1", "other.*"}}
		b := beginThrough(t, log, retainedLog{Log: log, until: old[39].Time, damage: damage, scopes: new([]oplog.Scope)}, delivery.Config{})
		defer b.end()
		start := delivery.SessionConfig{Start: delivery.Place{At: change.At(old[10].Time)}}
		concerned := []delivery.Subscription{subscribe(t, "c0"), subscribe(t, "c1")}
		lost := fmt.Sprintf("resync damaged %s–%s", damage.From, damage.To)
		deliverytest.Equal(t, "its collection", deliverytest.Refs(deliverytest.Receive(t, b.open(start, concerned), 29)), append([]string{lost}, deliverytest.Wanted(old[12:])...))
		deliverytest.Equal(t, "another one", deliverytest.Refs(deliverytest.Receive(t, b.open(start, concerned[:1]), 14)), deliverytest.Wanted(of(old[12:], "c0")))
		database := []delivery.Subscription{{ID: "other", Program: deliverytest.Compile(t, match.Filter{DB: "other", Coll: "any"})}}
		deliverytest.Equal(t, "its database", deliverytest.Refs(deliverytest.Receive(t, b.open(start, database), 1)), []string{lost})
	})
}
