package change

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
)

// Updated returns a document after an update, by the updateDescription of its event. told is false
// if the event has none, or if a name in it may be a name with dots or a path: between MongoDB 5.0,
// which added such names to updates, and 6.1, which tells both apart.
//
// A document may have had the update before, and later ones: as in MongoDB's own initial sync, all
// updates since any time before the document was read, applied again in their order, end at the
// present document. So a part that does not fit the document is left out, because a later update
// has replaced or removed it.
func Updated(doc, description []byte) (after []byte, told bool) {
	update := Value{Type: TypeDocument, Data: description}
	if description == nil || isAmbiguous(update) {
		return doc, false
	}
	u := updater{paths: update.Lookup("disambiguatedPaths").Document()}
	for _, shortened := range elements(update.Lookup("truncatedArrays").Data) {
		field := shortened.value.Lookup("field").Text()
		size := shortened.value.Lookup("newSize")
		if n, ok := size.Int64(); ok && n >= 0 {
			doc = u.apply(doc, field, alteration{size: int(n), truncates: true})
		}
	}
	for _, updated := range elements(update.Lookup("updatedFields").Data) {
		doc = u.apply(doc, updated.name, alteration{value: updated.value})
	}
	for _, removed := range elements(update.Lookup("removedFields").Data) {
		doc = u.apply(doc, removed.value.Text(), alteration{})
	}
	return doc, true
}

// isAmbiguous reports whether a name in an updateDescription may be a name with dots or a path. The
// truncatedArrays come from MongoDB 5.0 on, the disambiguatedPaths from 6.1 on: they have the steps
// of one field only where two have the same text.
func isAmbiguous(update Value) bool {
	if update.Lookup("truncatedArrays").IsZero() {
		return false
	}
	ambiguous := func(name []byte) bool { return bytes.IndexByte(name, '.') >= 0 }
	if paths := update.Lookup("disambiguatedPaths").Document(); paths != nil {
		named := make(map[string]bool)
		ambiguous = func(name []byte) bool {
			twice := named[string(name)]
			named[string(name)] = true
			return twice
		}
	}
	return slices.ContainsFunc(elements(update.Lookup("updatedFields").Data), func(e namedValue) bool { return ambiguous(e.name) }) ||
		slices.ContainsFunc(elements(update.Lookup("removedFields").Data), func(e namedValue) bool { return ambiguous(e.value.Text()) }) ||
		slices.ContainsFunc(elements(update.Lookup("truncatedArrays").Data), func(e namedValue) bool { return ambiguous(e.value.Lookup("field").Text()) })
}

// An updater applies an update.
type updater struct {
	paths []byte // the steps of names that are not clear
}

// An alteration is what happens to a field: it gets a value, is truncated, or is removed.
type alteration struct {
	value     Value
	size      int
	truncates bool
}

// removes reports whether the field is removed.
func (a alteration) removes() bool { return a.value.IsZero() && !a.truncates }

// apply returns a document after the alteration of a field.
func (u *updater) apply(doc, field []byte, a alteration) []byte {
	return altered(doc, false, u.steps(field), a)
}

// steps returns the steps of a field: names, or indexes of arrays.
func (u *updater) steps(field []byte) (steps [][]byte) {
	if path := lookup(u.paths, string(field)); path.Type == TypeArray {
		for _, step := range elements(path.Data) {
			if i, is := step.value.Int64(); is {
				steps = append(steps, strconv.AppendInt(nil, i, 10))
			} else {
				steps = append(steps, step.value.Text())
			}
		}
	}
	if len(steps) > 0 {
		return steps
	}
	return bytes.Split(field, []byte{'.'})
}

// altered returns a document or an array after the alteration of what is at the end of the steps.
// What is missing on the way is made, unless it is something in it that is to go.
func altered(container []byte, isArray bool, steps [][]byte, a alteration) []byte {
	step := steps[0]
	last := len(steps) == 1
	made := false // the element was not there
	if isArray {
		i, is := indexOf(step)
		if !is {
			return container
		}
		before := len(container)
		container = extended(container, i, a)
		made = len(container) > before
		step = strconv.AppendInt(nil, int64(i), 10)
	}
	b := make([]byte, 4, len(container)+len(a.value.Data)+16)
	found := false
	for _, e := range elements(container) {
		switch {
		case found || !bytes.Equal(e.name, step):
			b = AppendElement(b, e.value.Type, string(e.name), e.value.Data)
			continue
		case last && a.removes() && isArray: // an array keeps its length
			b = AppendElement(b, TypeNull, string(step), nil)
		case last && a.removes():
		case made:
			v := nested(a.value, steps[1:])
			b = AppendElement(b, v.Type, string(step), v.Data)
		default:
			v := alteredValue(e.value, steps[1:], a)
			b = AppendElement(b, v.Type, string(step), v.Data)
		}
		found = true
	}
	if !found && !isArray && !a.value.IsZero() {
		v := nested(a.value, steps[1:])
		b = AppendElement(b, v.Type, string(step), v.Data)
	}
	return EndDocument(b, 0)
}

// nested returns documents that have the value at the end of the steps.
func nested(v Value, steps [][]byte) Value {
	for _, step := range slices.Backward(steps) {
		v = Value{Type: TypeDocument, Data: WrapDocument(AppendElement(nil, v.Type, string(step), v.Data))}
	}
	return v
}

// alteredValue returns a value after the alteration of what is at the end of the steps in it.
func alteredValue(v Value, steps [][]byte, a alteration) Value {
	isArray := v.Type == TypeArray
	switch {
	case len(steps) > 0 && (isArray || v.Type == TypeDocument):
		return Value{Type: v.Type, Data: altered(v.Data, isArray, steps, a)}
	case len(steps) > 0:
		return v
	case !a.truncates:
		return a.value
	case isArray:
		return Value{Type: v.Type, Data: truncated(v.Data, a.size)}
	}
	return v
}

// truncated returns the first elements of an array.
func truncated(array []byte, size int) []byte {
	all := elements(array)
	b := make([]byte, 4, len(array))
	for _, e := range all[:min(size, len(all))] {
		b = AppendElement(b, e.value.Type, string(e.name), e.value.Data)
	}
	return EndDocument(b, 0)
}

// extended returns an array that has an element with an index, if the alteration gives it a value.
func extended(array []byte, index int, a alteration) []byte {
	n := len(elements(array))
	if a.value.IsZero() || index < n {
		return array
	}
	b := slices.Clone(array[:len(array)-1])
	for ; n <= index; n++ {
		b = AppendElement(b, TypeNull, strconv.Itoa(n), nil)
	}
	return EndDocument(b, 0)
}

// maxElements bounds an array that an update makes longer: MongoDB allows no document that has
// more.
const maxElements = 1_500_000

// indexOf reads an index of an array.
func indexOf(step []byte) (i int, ok bool) {
	i, err := strconv.Atoi(string(step))
	return i, err == nil && i >= 0 && i < maxElements
}

// IsAlike reports whether two documents are equal except for the order of their fields.
func IsAlike(a, b []byte) bool {
	if len(a) != len(b) || bytes.Equal(a, b) {
		return len(a) == len(b)
	}
	some, others := byName(a), byName(b)
	return slices.EqualFunc(some, others, func(x, y namedValue) bool {
		if nests := x.value.Type == TypeDocument || x.value.Type == TypeArray; !bytes.Equal(x.name, y.name) || x.value.Type != y.value.Type || !nests {
			return bytes.Equal(x.name, y.name) && x.value.Equal(y.value)
		}
		return IsAlike(x.value.Data, y.value.Data)
	})
}

func byName(doc []byte) []namedValue {
	all := elements(doc)
	slices.SortFunc(all, func(a, b namedValue) int { return bytes.Compare(a.name, b.name) })
	return all
}

// A namedValue is an element of a document or an array.
type namedValue struct {
	name  []byte
	value Value
}

// elements returns the elements of a document or an array, up to the first that is malformed.
func elements(doc []byte) (all []namedValue) {
	if len(doc) < 5 || int(binary.LittleEndian.Uint32(doc)) != len(doc) {
		return nil
	}
	for at := 4; ; {
		name, v, next, err := element(doc, at)
		if err != nil || name == nil {
			return all
		}
		all = append(all, namedValue{name, v})
		at = next
	}
}
