package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// customersColl is the collection of the customers.
const customersColl = "customers"

// Numbers of the shop: its first order, the customers of a worker at a time, and the share of
// changes that concern customers (one in so many).
const (
	firstOrder     = 1000
	customers      = 10
	customersShare = 8
)

// A document is an order or a customer as its worker knows it.
type document struct {
	key

	seq    int64 // number of its last change, which the document has as rev
	status int   // of an order
}

// status returns how far an order is; the last one is the end.
func status(i int) string {
	return [...]string{"placed", "paid", "packed", "shipped", "delivered"}[i]
}

const delivered = 4

// change makes the next change of an order or a customer.
func (w *worker) change() (mongo.WriteModel, written) {
	if w.cfg.Customers && rand.IntN(customersShare) == 0 {
		return w.customerChange()
	}
	if n := len(w.orders); n == 0 || n < w.cfg.Live && rand.IntN(3) == 0 {
		return w.place()
	}
	i := rand.IntN(len(w.orders))
	d := &w.orders[i]
	d.seq++
	note := written{key: d.key, seq: d.seq}
	switch chance := rand.IntN(10); {
	case chance == 0: // the customer has chosen other items
		return mongo.NewReplaceOneModel().SetFilter(d.filter()).SetReplacement(order(*d)), note
	case chance == 1:
		return d.set(bson.E{Key: "address", Value: address()}), note
	case chance == 2:
		items, total := basket()
		return d.set(bson.E{Key: "items", Value: items}, bson.E{Key: "total", Value: total}), note
	case d.status < delivered:
		d.status++
		return d.set(bson.E{Key: "status", Value: status(d.status)}), note
	}
	note.deleted = true
	model := mongo.NewDeleteOneModel().SetFilter(d.filter())
	w.orders[i] = w.orders[len(w.orders)-1]
	w.orders = w.orders[:len(w.orders)-1]
	return model, note
}

// place makes a new order.
func (w *worker) place() (mongo.WriteModel, written) {
	d := document{key: key{w.cfg.Coll, w.nextOrder}, seq: 1}
	w.nextOrder += int64(w.cfg.Workers)
	w.orders = append(w.orders, d)
	return mongo.NewInsertOneModel().SetDocument(order(d)), written{key: d.key, seq: d.seq}
}

// customerChange makes a new customer while there are few, otherwise one moves or, rarely, leaves.
func (w *worker) customerChange() (mongo.WriteModel, written) {
	if len(w.customers) < customers {
		d := document{key: key{customersColl, w.nextCustomer}, seq: 1}
		w.nextCustomer += int64(w.cfg.Workers)
		w.customers = append(w.customers, d)
		return mongo.NewInsertOneModel().SetDocument(customer(d)), written{key: d.key, seq: d.seq}
	}
	i := rand.IntN(len(w.customers))
	d := &w.customers[i]
	d.seq++
	note := written{key: d.key, seq: d.seq}
	if rand.IntN(20) > 0 {
		return d.set(bson.E{Key: "address", Value: address()}), note
	}
	note.deleted = true
	model := mongo.NewDeleteOneModel().SetFilter(d.filter())
	w.customers[i] = w.customers[len(w.customers)-1]
	w.customers = w.customers[:len(w.customers)-1]
	return model, note
}

func (d *document) filter() bson.D { return bson.D{{Key: "_id", Value: d.id}} }

// set makes an update of some fields and the number of the change.
func (d *document) set(fields ...bson.E) mongo.WriteModel {
	fields = append(fields, bson.E{Key: "rev", Value: d.seq}, bson.E{Key: "updated", Value: time.Now()})
	return mongo.NewUpdateOneModel().SetFilter(d.filter()).SetUpdate(bson.D{{Key: "$set", Value: bson.D(fields)}})
}

func order(d document) bson.D {
	items, total := basket()
	who := 1 + d.id%customers
	return bson.D{
		{Key: "_id", Value: d.id},
		{Key: "customer", Value: bson.D{{Key: "id", Value: who}, {Key: "name", Value: person(who)}}},
		{Key: "items", Value: items},
		{Key: "total", Value: total},
		{Key: "status", Value: status(d.status)},
		{Key: "address", Value: address()},
		{Key: "rev", Value: d.seq},
		{Key: "updated", Value: time.Now()},
	}
}

func customer(d document) bson.D {
	return bson.D{
		{Key: "_id", Value: d.id},
		{Key: "name", Value: person(d.id)},
		{Key: "email", Value: fmt.Sprintf("customer-%d@example.com", d.id)},
		{Key: "address", Value: address()},
		{Key: "rev", Value: d.seq},
		{Key: "updated", Value: time.Now()},
	}
}

// basket chooses items, and returns their total.
func basket() (items bson.A, total float64) {
	goods := [...]struct {
		sku, name string
		price     float64
	}{
		{"B-101", "Espresso beans, 1 kg", 18.90}, {"B-102", "Decaf beans, 500 g", 11.50}, {"B-103", "Green beans, 5 kg", 64.00},
		{"G-201", "Hand grinder", 79.00}, {"G-202", "Electric grinder", 249.00}, {"P-301", "Filter paper, 100", 4.20},
		{"P-302", "Pour-over kettle", 58.00}, {"C-401", "Cup, 200 ml", 9.50}, {"C-402", "Cups, set of six", 48.00},
	}
	for range 1 + rand.IntN(3) {
		g := goods[rand.IntN(len(goods))]
		quantity := 1 + rand.IntN(3)
		items = append(items, bson.D{{Key: "sku", Value: g.sku}, {Key: "name", Value: g.name}, {Key: "price", Value: g.price}, {Key: "quantity", Value: quantity}})
		total += float64(quantity) * g.price
	}
	return items, math.Round(total*100) / 100
}

// person returns the name of a customer.
func person(number int64) string {
	first := [...]string{"Ada", "Bo", "Chidi", "Dilnoza", "Emre", "Freya", "Goran", "Hana", "Inés", "Jun", "Kofi"}
	last := [...]string{"Okafor", "Lindqvist", "Tanaka", "Moreau", "Kaya", "Silva", "Novák"}
	return first[number%int64(len(first))] + " " + last[number%int64(len(last))]
}

func address() bson.D {
	places := [...][2]string{{"Lisbon", "PT"}, {"Malmö", "SE"}, {"Kraków", "PL"}, {"Lagos", "NG"}, {"Osaka", "JP"}, {"Toronto", "CA"}, {"Valparaíso", "CL"}}
	streets := [...]string{"Harbour Street", "Mill Lane", "Station Road", "Orchard Way", "Chapel Hill"}
	p := places[rand.IntN(len(places))]
	return bson.D{
		{Key: "street", Value: fmt.Sprintf("%d %s", 1+rand.IntN(120), streets[rand.IntN(len(streets))])},
		{Key: "city", Value: p[0]},
		{Key: "country", Value: p[1]},
	}
}
