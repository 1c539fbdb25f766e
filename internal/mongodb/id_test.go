package mongodb

import (
	"bytes"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
)

// An _id that a person has written is the _id of the document that he means.
func TestIDsAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	object, err := bson.ObjectIDFromHex("650000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]any{
		`A-17`:                                "A-17",
		`"A-17"`:                              "A-17",
		`é "`:                                 `é "`,
		`5`:                                   int64(5),
		`5.0`:                                 5,
		`-5.5`:                                -5.5,
		`"5"`:                                 "5",
		`{"$numberDecimal":"5.00"}`:           5,
		`650000000000000000000001`:            object,
		`{"$oid":"650000000000000000000001"}`: object,
		`"650000000000000000000001"`:          "650000000000000000000001",
		`{"$date":"2026-01-02T00:00:00Z"}`:    time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
		`{"a":1,"b":"x"}`:                     bson.D{{Key: "a", Value: 1.0}, {Key: "b", Value: "x"}},
		`null`:                                nil,
		`true`:                                true,
		`5,"x":6`:                             `5,"x":6`,
	} {
		id, err := ParseID(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: want}})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(change.AppendCanonical(nil, id), change.AppendCanonical(nil, change.IDOf(doc))) {
			t.Errorf("%s is %v", text, id)
		}
	}
	for _, text := range []string{"", "[1]", `{"$oid":"x"}`} {
		if id, err := ParseID(text); err == nil {
			t.Errorf("%s is %v", text, id)
		}
	}
}
