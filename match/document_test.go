package match_test

import (
	"os"
	"regexp"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/match"
)

// The examples of docs/filters.md do what it says.
func TestExamplesOfTheDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/filters.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(.+)` \\| `(\\{.*\\})` \\| (yes|no) \\|$").FindAllStringSubmatch(string(text), -1)
	if len(rows) < 20 {
		t.Fatalf("only %d examples", len(rows))
	}
	for _, row := range rows {
		var fields bson.D
		if err := bson.UnmarshalExtJSON([]byte(row[2]), false, &fields); err != nil {
			t.Errorf("%s: %v", row[2], err)
			continue
		}
		fields = append(bson.D{
			{Key: "_id", Value: bson.Raw(changetest.Token(changetest.Event{}))}, {Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}},
			{Key: "documentKey", Value: bson.D{{Key: "_id", Value: 7}}},
		}, fields...)
		raw, err := bson.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		e, err := change.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, match.Filter{Source: row[1], Carries: everything()}, &e, row[3] == "yes", "")
	}
}
