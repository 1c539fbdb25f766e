package match_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/match"
)

// A crowd is the subscriptions of many gateways: 70 % follow a document, 25 % a field, 4.9 % a
// field and more in CEL, 0.1 % what no index helps with. However many there are, an event matches
// about as many of them.
type crowd struct {
	size     int
	programs []*match.Program
	rest     []*match.Program // those that no index helps with
}

// shares of 1000 subscriptions.
const (
	shareID    = 700
	shareField = 250
	shareMixed = 49
)

// largeCrowd makes the crowd that several benchmarks need, once: it takes some 20 s of CPU, and a
// tenth of that with -short.
//
//nolint:gochecknoglobals // benchmarks share it
var largeCrowd = sync.OnceValue(func() *crowd {
	if testing.Short() {
		return newCrowd(10_000)
	}
	return newCrowd(100_000)
})

func newCrowd(size int) *crowd {
	c := &crowd{size: size}
	for i := range size {
		p, err := match.Compile(match.Filter{
			Source: c.source(i), DB: "shop", Coll: "orders", Carries: match.Carries{Document: true},
		})
		if err != nil {
			panic(err)
		}
		c.programs = append(c.programs, p)
		if i%1000 >= shareID+shareField+shareMixed {
			c.rest = append(c.rest, p)
		}
	}
	return c
}

func (c *crowd) source(i int) string {
	switch kind := i % 1000; {
	case kind < shareID/2:
		return fmt.Sprintf("key._id == ObjectId(%q)", orderID(i).Hex())
	case kind < shareID:
		return fmt.Sprintf("doc._id == ObjectId(%q)", orderID(i).Hex())
	case kind < shareID+150:
		return fmt.Sprintf("doc.customer == %q", customer(i))
	case kind < shareID+200:
		return fmt.Sprintf(`doc.address.city in [%q, %q, "nowhere"]`, city(i), city(i+1))
	case kind < shareID+shareField:
		return fmt.Sprintf("doc.total >= %d && doc.total < %d", i, i+20)
	case kind < shareID+shareField+shareMixed:
		return fmt.Sprintf(`doc.customer == %q && doc.items.exists(i, i.price > 10.0 && i.sku.startsWith("sku-"))`, customer(i))
	}
	switch i / 1000 % 3 {
	case 0:
		return fmt.Sprintf(`doc.items.exists(i, i.sku == "sku-%d")`, i)
	case 1:
		return fmt.Sprintf(`doc.note.contains("room %d")`, i)
	}
	return fmt.Sprintf(`doc.status != "open" || doc.total > doc.limit + %d`, i)
}

func (c *crowd) index(t testing.TB, except []*match.Program) *match.Index {
	t.Helper()
	skip := make(map[*match.Program]bool, len(except))
	for _, p := range except {
		skip[p] = true
	}
	x := new(match.Index)
	for i, p := range c.programs {
		if !skip[p] && !x.Add(match.ID(i), p) {
			t.Fatal("added twice")
		}
	}
	return x
}

func orderID(i int) bson.ObjectID {
	var id bson.ObjectID
	binary.BigEndian.PutUint64(id[4:], uint64(i)*0x9E3779B97F4A7C15)
	return id
}

func customer(i int) string { return fmt.Sprintf("customer-%07d", i) }
func city(i int) string     { return fmt.Sprintf("city-%d", i) }

// events are orders of about 700 bytes, each of a customer, a city and a total that some
// subscription may ask for.
func (c *crowd) events(t testing.TB, n int) []change.Event {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	events := make([]change.Event, n)
	for i := range events {
		id := orderID(r.IntN(c.size))
		items := bson.A{}
		for range 3 {
			items = append(items, bson.D{{Key: "sku", Value: fmt.Sprintf("sku-%d", r.IntN(1e9))}, {Key: "price", Value: r.Float64() * 20}, {Key: "count", Value: int32(1)}})
		}
		raw, err := bson.Marshal(bson.D{
			{Key: "_id", Value: bson.Raw(changetest.Token(changetest.Event{ID: int64(i)}))},
			{Key: "operationType", Value: []string{"insert", "update", "replace"}[i%3]}, {Key: "clusterTime", Value: bson.Timestamp{T: uint32(i)}},
			{Key: "fullDocument", Value: bson.D{
				{Key: "_id", Value: id}, {Key: "status", Value: "open"}, {Key: "customer", Value: customer(r.IntN(c.size))},
				{Key: "address", Value: bson.D{{Key: "street", Value: "Long Road 7"}, {Key: "city", Value: city(r.IntN(c.size))}, {Key: "zip", Value: "12345"}}},
				{Key: "items", Value: items}, {Key: "total", Value: int64(r.IntN(c.size))}, {Key: "limit", Value: int64(c.size)}, {Key: "currency", Value: "EUR"},
				{Key: "createdAt", Value: time.UnixMilli(1)}, {Key: "note", Value: "please ring twice"},
			}},
			{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}},
			{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if events[i], err = change.Parse(raw); err != nil {
			t.Fatal(err)
		}
	}
	return events
}

func BenchmarkIndex(b *testing.B) {
	for _, c := range []*crowd{newCrowd(1_000), largeCrowd()} {
		events := c.events(b, 4096)
		b.Run(fmt.Sprintf("subscriptions=%d/indexable", c.size), func(b *testing.B) { matchAll(b, c.index(b, c.rest), events) })
		b.Run(fmt.Sprintf("subscriptions=%d/all", c.size), func(b *testing.B) { matchAll(b, c.index(b, nil), events) })
	}
}

func matchAll(b *testing.B, x *match.Index, events []change.Event) {
	var ids []match.ID
	matched := 0
	runtime.GC() // what was left from making the crowd
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		ids = x.Match(&events[i%len(events)], ids[:0], match.Report(func(id match.ID, err error) { b.Fatal(id, err) }))
		matched += len(ids)
	}
	b.ReportMetric(float64(matched)/float64(b.N), "matches/op")
}

// BenchmarkLinear is what the index is compared with: CEL asked about every subscription, which
// costs ten times as much for ten times as many.
func BenchmarkLinear(b *testing.B) {
	c := newCrowd(10_000)
	events := c.events(b, 16)
	b.Run("subscriptions=10000/all", func(b *testing.B) { linear(b, c.programs, events) })
	b.Run("subscriptions=10000/rest", func(b *testing.B) { linear(b, c.rest, events) })
}

func linear(b *testing.B, programs []*match.Program, events []change.Event) {
	for _, p := range programs {
		if _, err := p.MatchInCEL(&events[0]); err != nil { // plans the program
			b.Fatal(err)
		}
	}
	matched := 0
	runtime.GC()
	for i := 0; b.Loop(); i++ {
		for _, p := range programs {
			yes, err := p.MatchInCEL(&events[i%len(events)])
			if err != nil {
				b.Fatal(err)
			}
			if yes {
				matched++
			}
		}
	}
	b.ReportMetric(float64(matched)/float64(b.N), "matches/op")
}

// BenchmarkCompile is what a subscriber who comes costs.
func BenchmarkCompile(b *testing.B) {
	c := &crowd{size: 1000}
	for _, i := range []int{0, 700, 960} {
		b.Run(fmt.Sprint(i), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := match.Compile(match.Filter{Source: c.source(i), Carries: match.Carries{Document: true}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkChurn adds and removes a subscription among many.
func BenchmarkChurn(b *testing.B) {
	c := largeCrowd()
	x := c.index(b, nil)
	for i := 0; b.Loop(); i++ {
		x.Remove(match.ID(i % c.size))
		x.Add(match.ID(i%c.size), c.programs[i%c.size])
	}
}
