package expr

import (
	"errors"

	"github.com/mongostream/streamer/change"
)

// errMalformed says that bytes are not valid BSON.
var errMalformed = errors.New("malformed BSON")

// First is the offset of the first element in a document.
const First = 4

// lookupField returns a field, or the zero Value. The first of duplicate fields counts.
func lookupField(doc []byte, name string) (change.Value, error) {
	v, _, err := findField(doc, name)
	return v, err
}

// findField is lookupField and also returns the number of elements walked.
func findField(doc []byte, name string) (v change.Value, walked int, err error) {
	for at := First; ; walked++ {
		key, v, next, err := change.Element(doc, at)
		switch {
		case err != nil:
			return change.Value{}, walked, errMalformed
		case key == nil:
			return change.Value{}, walked, nil
		case string(key) == name:
			return v, walked, nil
		}
		at = next
	}
}
