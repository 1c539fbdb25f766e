package gateways

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/match"
)

// A crowd is the subscriptions of many gateways: 70 % follow a document, 25 % a field, 4.9 % a field and more in CEL, 0.1 % what no index
// helps with. However many there are, an event matches about as many of them.
type crowd struct {
	size      int
	programs  []*match.Program
	indexable []*match.Program
	rest      []*match.Program // those that no index helps with
}

// Shares of 1000 subscriptions.
const (
	shareID    = 700
	shareField = 250
	shareMixed = 49
)

const (
	db, coll = "shop", "orders"
)

func newCrowd(size int) (*crowd, error) {
	c := &crowd{size: size}
	for i := range size {
		p, err := match.Compile(match.Filter{Source: c.source(i), DB: db, Coll: coll, Carries: match.Carries{Document: true}})
		if err != nil {
			return nil, fmt.Errorf("filter %d: %w", i, err)
		}
		c.programs = append(c.programs, p)
		if i%1000 < shareID+shareField+shareMixed {
			c.indexable = append(c.indexable, p)
		} else {
			c.rest = append(c.rest, p)
		}
	}
	return c, nil
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

// index makes the index of subscriptions, whose ids are their places.
func index(programs []*match.Program) *match.Index {
	x := new(match.Index)
	for i, p := range programs {
		x.Add(match.ID(i), p)
	}
	return x
}

func orderID(i int) (id bson.ObjectID) {
	binary.BigEndian.PutUint64(id[4:], uint64(i)*0x9E3779B97F4A7C15)
	return id
}

func customer(i int) string { return fmt.Sprintf("customer-%07d", i) }
func city(i int) string     { return fmt.Sprintf("city-%d", i) }

// events are orders of about 700 bytes, each of a customer, a city and a total that some subscription may ask for.
func (c *crowd) events(n int) ([]change.Event, error) {
	r := rand.New(rand.NewPCG(1, 2))
	events := make([]change.Event, n)
	for i := range events {
		id := orderID(r.IntN(c.size))
		items := bson.A{}
		for range 3 {
			items = append(items, bson.D{
				{Key: "sku", Value: fmt.Sprintf("sku-%d", r.IntN(1e9))}, {Key: "price", Value: r.Float64() * 20}, {Key: "count", Value: int32(1)},
			})
		}
		raw, err := eventOf([]string{"insert", "update", "replace"}[i%3], i, id, bson.D{
			{Key: "_id", Value: id}, {Key: "status", Value: "open"}, {Key: "customer", Value: customer(r.IntN(c.size))},
			{Key: "address", Value: bson.D{{Key: "street", Value: "Long Road 7"}, {Key: "city", Value: city(r.IntN(c.size))}, {Key: "zip", Value: "12345"}}},
			{Key: "items", Value: items}, {Key: "total", Value: int64(r.IntN(c.size))}, {Key: "limit", Value: int64(c.size)}, {Key: "currency", Value: "EUR"},
			{Key: "createdAt", Value: time.UnixMilli(1)}, {Key: "note", Value: "please ring twice"},
		})
		if err != nil {
			return nil, err
		}
		if events[i], err = change.Parse(raw); err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
	}
	return events, nil
}

// eventOf makes the n-th change event of a log, as MongoDB writes it.
func eventOf(op string, n int, id any, doc bson.D) ([]byte, error) {
	at := timeOf(n)
	raw, err := bson.Marshal(bson.D{
		{Key: "_id", Value: bson.D{{Key: "_data", Value: fmt.Sprintf("82%08X%08X2B042C0100296E5A1004%032X04", at.T, at.I, n)}}},
		{Key: "operationType", Value: op}, {Key: "clusterTime", Value: bson.Timestamp{T: at.T, I: at.I}},
		{Key: "fullDocument", Value: doc},
		{Key: "ns", Value: bson.D{{Key: "db", Value: db}, {Key: "coll", Value: coll}}},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
	})
	if err != nil {
		return nil, fmt.Errorf("write an event: %w", err)
	}
	return raw, nil
}

// timeOf is the time in the log of its n-th event.
func timeOf(n int) change.Timestamp { return change.Timestamp{T: 1_700_000_000, I: uint32(n + 1)} }
