package mongodb

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/snapshot"
)

// Where the driver does not show a reply, its documents are taken one after the other.
func TestCursorThatShowsNoReplyIsRead(t *testing.T) {
	cursor, err := mongo.NewCursorFromDocuments([]any{bson.D{{Key: "_id", Value: 0}}, bson.D{{Key: "_id", Value: 1}}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := snapshot.Page{}
	q := snapshot.Query{Documents: 10, Bytes: snapshot.PageBytes}
	for size := 0; cursor.Next(t.Context()); {
		if size, err = addDocuments(&p, q, size, takeReply(cursor)); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.Documents) != 2 || bson.Raw(p.Documents[1]).Lookup("_id").Int32() != 1 {
		t.Errorf("%q, %v", p.Documents, cursor.Err())
	}
}
