package match_test

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/match"
)

// order makes the event of an insert.
func order(doc bson.D) *change.Event {
	raw, _ := bson.Marshal(bson.D{
		{Key: "_id", Value: bson.Raw(changetest.Token(changetest.Event{}))}, {Key: "operationType", Value: "insert"}, {Key: "fullDocument", Value: doc},
		{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: doc[0].Value}}},
	})
	e, _ := change.Parse(raw)
	return &e
}

func ExampleCompile() {
	program, err := match.Compile(match.Filter{
		DB: "shop", Coll: "orders",
		Source:  `doc.status in ["open", "held"] && doc.items.exists(i, i.price > 100)`,
		Carries: match.Carries{Document: true}, // mongodb.full_document: updateLookup
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	cheap := bson.A{bson.D{{Key: "price", Value: 7}}}
	costly := bson.A{bson.D{{Key: "price", Value: 7}}, bson.D{{Key: "price", Value: 120.5}}}
	fmt.Println(program.Match(order(bson.D{{Key: "_id", Value: 1}, {Key: "status", Value: "open"}, {Key: "items", Value: cheap}})))
	fmt.Println(program.Match(order(bson.D{{Key: "_id", Value: 2}, {Key: "status", Value: "held"}, {Key: "items", Value: costly}})))

	_, err = match.Compile(match.Filter{Source: "doc.status = 'open'"})
	fmt.Println(err)
	// Output:
	// false <nil>
	// true <nil>
	// STRM-FILTER-INVALID: line 1, column 12: unexpected '= '
}

func ExampleIndex() {
	var index match.Index
	for id, source := range []string{`key._id == 7`, `doc.customer == "ada"`, `doc.total >= 100 && doc.total < 200`, `doc.total < "none"`} {
		program, err := match.Compile(match.Filter{Source: source, Carries: match.Carries{Document: true}})
		if err != nil {
			fmt.Println(err)
			return
		}
		index.Add(match.ID(id), program)
	}
	event := order(bson.D{{Key: "_id", Value: 7}, {Key: "customer", Value: "ada"}, {Key: "total", Value: 250}})
	matched := index.Match(event, nil, match.Report(func(id match.ID, err error) { fmt.Println(id, err) }))
	slices.Sort(matched)
	fmt.Println(matched)
	// Output:
	// 3 STRM-FILTER-EVALUATION: number < string has no meaning
	// [0 1]
}
