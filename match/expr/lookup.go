package expr

import (
	"errors"

	"github.com/mongostream/streamer/change"
)

// errMalformed says that bytes are not the BSON they claim to be.
var errMalformed = errors.New("malformed BSON")

// First is where the elements of a document begin, behind its length.
const First = 4

// lookupField returns a field, the zero Value where there is none. Of fields that stand twice the first counts.
func lookupField(doc []byte, name string) (change.Value, error) {
	v, _, err := findField(doc, name)
	return v, err
}

// findField is lookupField that says how many elements it looked at.
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
