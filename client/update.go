package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A liveUpdate describes the change of a document by an update event. The names of fields may have
// dots or be numbers, so that a path of names between dots can mean several fields. Since MongoDB
// 6.1 paths says which one is meant.
type liveUpdate struct {
	Updated   updatedFields `json:"updatedFields"`
	Removed   []string      `json:"removedFields"`
	Truncated []struct {
		Field string      `json:"field"`
		Size  json.Number `json:"newSize"`
	} `json:"truncatedArrays"` // nil below MongoDB 5.0, where an update cannot name a field with dots
	Paths map[string][]any `json:"disambiguatedPaths"` // nil where the server does not say it
}

// apply returns a document after the update, without the fields that are not among some; none means
// all of them. sure is false where it cannot be known which fields the update means, or where it
// does not fit the document. Containers on the way to what changes are copied.
func (u *liveUpdate) apply(doc Document, some []string) (after Document, sure bool) {
	sure = !u.isTwofold()
	var all any = doc
	step := func(field string, change func(any) (any, bool)) {
		path, known := u.path(field)
		if !selects(some, field, path, known) {
			return
		}
		next, fits := u.changed(all, path, change)
		sure = sure && known && fits
		all = next
	}
	for _, t := range u.Truncated {
		step(t.Field, func(v any) (any, bool) {
			list, isList := v.([]any)
			n, err := strconv.Atoi(t.Size.String())
			isSize := err == nil && 0 <= n && n <= len(list)
			if !isList || !isSize {
				return v, false
			}
			return slices.Clone(list[:n]), true
		})
	}
	for _, f := range u.Updated {
		step(f.name, func(any) (any, bool) { return f.value, true })
	}
	for _, field := range u.Removed {
		step(field, func(any) (any, bool) { return removed{}, true })
	}
	after, isDocument := all.(Document)
	return after, sure && isDocument
}

// isTwofold reports whether one text names two fields, and one has dots in its name: paths has the
// steps of one of them only.
func (u *liveUpdate) isTwofold() bool {
	if len(u.Paths) == 0 {
		return false
	}
	all := slices.Clone(u.Removed)
	for _, f := range u.Updated {
		all = append(all, f.name)
	}
	for _, t := range u.Truncated {
		all = append(all, t.Field)
	}
	slices.Sort(all)
	return len(slices.Compact(all)) < len(u.Removed)+len(u.Updated)+len(u.Truncated)
}

// updatedFields are not a map, because two of them may have the same text.
type updatedFields []updatedField

// An updatedField is the text of a field, and its value after the update.
type updatedField struct {
	name  string
	value any
}

// UnmarshalJSON reads the fields of an object.
func (u *updatedFields) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	switch open, err := d.Token(); {
	case err != nil || open == nil: // null
		return err
	case open != json.Delim('{'):
		return errors.New("updatedFields is not an object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		f := updatedField{name: name.(string)} // as names of objects are
		if err := d.Decode(&f.value); err != nil {
			return err
		}
		*u = append(*u, f)
	}
	return nil
}

// selects reports whether a field may be one of some, or in one of them.
func selects(some []string, field string, path []pathStep, known bool) bool {
	if len(some) == 0 {
		return true
	}
	if known {
		return path[0].name == "_id" || slices.Contains(some, path[0].name)
	}
	return slices.ContainsFunc(some, func(name string) bool { return field == name || strings.HasPrefix(field, name+".") })
}

// A pathStep is one step of a path: the name of a field or, in an array, an index.
type pathStep struct {
	name    string
	index   int
	isIndex bool
	either  bool // the container decides
}

// path returns the steps of a field, and whether they are known.
func (u *liveUpdate) path(field string) (steps []pathStep, known bool) {
	for _, step := range u.Paths[field] {
		switch step := step.(type) {
		case string:
			steps = append(steps, pathStep{name: step})
		case json.Number:
			i, err := strconv.Atoi(step.String())
			if err != nil {
				return []pathStep{{name: field}}, false
			}
			steps = append(steps, pathStep{index: i, isIndex: true})
		default:
			return []pathStep{{name: field}}, false
		}
	}
	if len(steps) > 0 {
		return steps, true
	}
	said := u.Paths != nil
	for name := range strings.SplitSeq(field, ".") {
		step := pathStep{name: name}
		if i, ok := indexOf(name); ok && len(steps) > 0 {
			step.index, step.isIndex, step.either = i, true, !said // a numeric name would be in the event's paths
		}
		steps = append(steps, step)
	}
	return steps, said || u.Truncated == nil || len(steps) == 1
}

// indexOf reads an index of an array: digits without a zero in front.
func indexOf(name string) (i int, ok bool) {
	isDigits := name != "" && strings.Trim(name, "0123456789") == ""
	if !isDigits || name[0] == '0' && name != "0" {
		return 0, false
	}
	i, err := strconv.Atoi(name)
	return i, err == nil
}

// removed is the result of a change that removes a field.
type removed struct{}

// changed returns a container with the value at the path changed. fits is false where the path does
// not fit the container, which is then returned as it is.
func (u *liveUpdate) changed(in any, path []pathStep, change func(any) (any, bool)) (out any, fits bool) {
	step := path[0]
	deeper := func(at any) (any, bool) {
		if len(path) == 1 {
			return change(at)
		}
		return u.changed(at, path[1:], change)
	}
	switch in := in.(type) {
	case []any:
		if !step.isIndex || step.index >= maxElements {
			return in, false
		}
		list := slices.Clone(in)
		for len(list) <= step.index {
			list = append(list, nil)
		}
		v, fits := deeper(list[step.index])
		if _, gone := v.(removed); gone {
			v = nil // an array keeps its length
		}
		list[step.index] = v
		return list, fits
	case nil:
		if u.Truncated != nil { // since 5.0 the event contains a new document as a whole
			return nil, false
		}
		return u.changed(Document{}, path, change)
	case Document:
		if step.isIndex && !step.either {
			return in, false
		}
		before, has := in[step.name]
		v, fits := deeper(before)
		doc := maps.Clone(in)
		if _, gone := v.(removed); gone {
			delete(doc, step.name)
			return doc, fits && has
		}
		doc[step.name] = v
		return doc, fits
	default:
		return in, false
	}
}

// maxElements bounds an array that an update makes longer: MongoDB allows no document that has
// more.
const maxElements = 1_500_000
