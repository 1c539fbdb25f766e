package match_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/leaktest"
	"github.com/mongostream/streamer/match"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Subscribers come and go while events are matched: who stays is found by every Match, who was
// never there by none, and who is added or removed by the next.
func TestReadersAreRightWhileSubscribersComeAndGo(t *testing.T) {
	const stable, writers, rounds = 64, 4, 300
	sources := []string{
		"key._id == %d", "doc.a == %d", "doc.a in [%d, -1]", "doc.a >= %[1]d && doc.a <= %[1]d", "doc.a == %d || doc.b == 7",
		"doc.s.x == %d", "doc.a == %d && doc.b.c == null", "size(doc.l) == 1 && doc.a == %d",
	}
	compile := func(i, value int) *match.Program {
		source := fmt.Sprintf(sources[i%len(sources)], value)
		p, err := match.Compile(match.Filter{Source: source, DB: "shop", Coll: []string{"", "orders"}[i%2], Carries: everything()})
		if err != nil {
			t.Fatal(source, err)
		}
		return p
	}
	var index match.Index
	for i := range stable {
		index.Add(match.ID(i), compile(i, i%8))
	}
	done := make(chan struct{})
	var readers, churn sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				value := n % 8
				got := index.Match(number(value), nil, match.Report(func(id match.ID, err error) { t.Error(id, err) }))
				found := make(map[match.ID]int)
				for _, id := range got {
					found[id]++
				}
				for i := range stable {
					if want := i%8 == value; (found[match.ID(i)] == 1) != want {
						t.Errorf("subscription %d, value %d: found %d times", i, value, found[match.ID(i)])
					}
				}
			}
		})
	}
	for w := range writers {
		churn.Go(func() {
			for i := range rounds {
				id := match.ID(1000 + w*rounds + i)
				index.Add(id, compile(i, i%8))
				if got := index.Match(number(i%8), nil, nil); !slices.Contains(got, id) {
					t.Errorf("%d was added and is not found", id)
				}
				index.Remove(id)
				if got := index.Match(number(i%8), nil, nil); slices.Contains(got, id) {
					t.Errorf("%d was removed and is found", id)
				}
			}
		})
	}
	churn.Wait()
	close(done)
	readers.Wait()
	if index.Len() != stable {
		t.Errorf("%d subscriptions are left, want %d", index.Len(), stable)
	}
}

// number makes an event that has a value wherever the filters above look.
func number(value int) *change.Event {
	return event("insert", value, bson.D{
		{Key: "_id", Value: value}, {Key: "a", Value: value}, {Key: "s", Value: bson.D{{Key: "x", Value: value}}}, {Key: "l", Value: bson.A{1}},
	}, nil)
}

// An index that everybody has left holds nothing.
func TestEmptiedIndexFindsNobody(t *testing.T) {
	var index match.Index
	programs := make([]*match.Program, 200)
	for i := range programs {
		p, err := match.Compile(match.Filter{Source: fmt.Sprintf("doc.f%d.g == %d || doc.h > %d", i, i, i), Carries: everything()})
		if err != nil {
			t.Fatal(err)
		}
		programs[i] = p
	}
	for range 3 {
		for i, p := range programs {
			index.Add(match.ID(i), p)
		}
		if got := index.Match(event("insert", 1, bson.D{{Key: "h", Value: 1000}}, nil), nil, nil); len(got) != len(programs) {
			t.Fatalf("%d found, want %d", len(got), len(programs))
		}
		for i := range programs {
			index.Remove(match.ID(i))
		}
		if size := index.Places(); index.Len() != 0 || size != 0 {
			t.Fatalf("%d subscriptions, %d places are left", index.Len(), size)
		}
	}
}
