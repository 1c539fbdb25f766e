package stream

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
)

// RelaxedJSON appends an event to b as relaxed Extended JSON without its resume token, which names the document's key and is of
// no use to a subscriber: positions are handed out in another form. (MongoDB Extended JSON v2.)
func RelaxedJSON(b []byte, e *change.Event) ([]byte, error) { return appendJSON(b, e.Raw(), "_id") }

// DocumentJSON appends a BSON document to b as relaxed Extended JSON.
func DocumentJSON(b, doc []byte) ([]byte, error) { return appendJSON(b, doc, "") }

func appendJSON(b, raw []byte, without string) ([]byte, error) {
	elements, err := bson.Raw(raw).Elements()
	if err != nil {
		return b, fmt.Errorf("read an event: %w", err)
	}
	doc := make(bson.D, 0, len(elements))
	for _, element := range elements {
		if key := element.Key(); key != without {
			doc = append(doc, bson.E{Key: key, Value: element.Value()})
		}
	}
	text, err := bson.MarshalExtJSON(doc, false, false)
	if err != nil {
		return b, fmt.Errorf("write an event as JSON: %w", err)
	}
	return append(b, text...), nil
}
