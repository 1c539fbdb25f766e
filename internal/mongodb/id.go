package mongodb

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
)

// ParseID reads an _id that a person has written: 24 hexadecimal digits are an ObjectId, a value in
// Extended JSON is that value, and any other text is a string. A string that looks like one of the
// others is written with quotes.
func ParseID(text string) (change.Value, error) {
	if id, err := hex.DecodeString(text); err == nil && len(id) == len(bson.ObjectID{}) {
		return change.Value{Type: change.TypeObjectID, Data: id}, nil
	}
	if !json.Valid([]byte(text)) {
		if text == "" {
			return change.Value{}, errors.New("it is empty")
		}
		kind, data, err := bson.MarshalValue(text)
		return change.Value{Type: byte(kind), Data: data}, err
	}
	var doc bson.Raw
	if err := bson.UnmarshalExtJSON([]byte(`{"_id":`+text+`}`), false, &doc); err != nil {
		return change.Value{}, fmt.Errorf("read Extended JSON: %w", err)
	}
	id := change.IDOf(doc)
	if id.Type == change.TypeArray || id.IsZero() {
		return change.Value{}, errors.New("no _id is an array")
	}
	return id, nil
}
