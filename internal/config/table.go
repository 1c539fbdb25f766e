package config

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/mongostream/streamer/fault"
)

// A table is a struct with what its sources said of it. It is filled by one goroutine.
type table struct {
	// forms are what check tags name: nil where a text has the form.
	forms map[string]func(text string) error
	// open reads the file of a secret.
	open func(path string) ([]byte, error)

	keys       []key
	lists      map[string]reflect.Value // of sections
	origin     map[string]string        // where each key was last set; none for those at their default
	files      map[string]string        // the file that each value is in; none for those of the environment
	secrets    map[string]string        // of those, the files that hold nothing else
	refused    map[string]bool          // keys with a value that was complained of
	complaints []error
}

// newTable makes the table of the struct that config points at.
func newTable(config any) *table {
	return &table{
		keys:    appendKeys(nil, "", reflect.ValueOf(config).Elem()),
		lists:   lists("", reflect.ValueOf(config).Elem()),
		origin:  map[string]string{},
		files:   map[string]string{},
		secrets: map[string]string{},
		refused: map[string]bool{},
	}
}

// all yields the path of every key and the text of its value, secrets masked.
func (t *table) all() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, k := range t.keys {
			if !k.indirect && !yield(k.path, k.text()) {
				return
			}
		}
	}
}

// setDefaults gives every key its default. It panics on one that the key's own tags refuse: the
// table is broken.
func (t *table) setDefaults() {
	for _, k := range t.keys {
		if err := t.reset(k); err != nil {
			panic(fmt.Sprintf("table: default of %s: %v", k.path, err))
		}
	}
}

// lengthen gives a list of sections its length, and the keys of its sections their defaults.
func (t *table) lengthen(path string, n int) {
	list := t.lists[path]
	if n == 0 {
		return
	}
	list.Set(reflect.MakeSlice(list.Type(), n, n))
	for i := range n {
		item := fmt.Sprintf("%s[%d].", path, i)
		keys := appendKeys(nil, item, list.Index(i))
		t.keys = append(t.keys, keys...)
		maps.Copy(t.lists, lists(item, list.Index(i)))
		for _, k := range keys {
			if err := t.reset(k); err != nil {
				panic(fmt.Sprintf("table: default of %s: %v", k.path, err))
			}
		}
	}
}

func (t *table) reset(k key) error {
	text := k.tag.Get("default")
	list, ok := k.list()
	if !ok {
		return t.parse(k, text)
	}
	*list = splitList(text)
	for _, item := range *list {
		if err := t.check(k, item); err != nil {
			return err
		}
	}
	return nil
}

// A value is a source's value of a key: a text, or a list of texts.
type value struct {
	where  string // file:line, or the variable's name
	file   string // none for a variable
	text   string
	items  []value
	isList bool
}

// apply takes a setting of a source whose earlier ones are in seen. A secret and its file in one
// source contradict each other; in two sources, the later wins.
func (t *table) apply(seen map[string]string, k key, v value) {
	target := k.target()
	if other, twice := seen[target]; twice {
		t.complain(fault.ConfigConflict, v.where, "%s and %s exclude each other (%s)", target, target+fileSuffix, other)
		return
	}
	seen[target], t.origin[target], t.files[target] = v.where, v.where, v.file
	delete(t.secrets, target)
	t.set(k, v)
}

// set gives one key its value.
func (t *table) set(k key, v value) {
	list, wantsList := k.list()
	switch {
	case wantsList && v.isList:
		*list = t.setList(k, v)
	case wantsList:
		t.refuse(k, v.where, errors.New("must be a list, such as [a, b]"))
	case v.isList:
		t.refuse(k, v.where, errors.New("takes one value, not a list"))
	case k.indirect:
		t.setFromFile(k, v)
	default:
		if err := t.parse(k, v.text); err != nil {
			t.refuse(k, v.where, k.about(v.text, err))
		}
	}
}

// setList checks the items of a list, which may not repeat.
func (t *table) setList(k key, v value) []string {
	var list []string
	for _, item := range v.items {
		switch err := t.check(k, item.text); {
		case err != nil:
			t.refuse(k, item.where, k.about(item.text, err))
		case slices.Contains(list, item.text):
			t.refuse(k, item.where, k.about(item.text, errors.New("stands twice")))
		}
		list = append(list, item.text)
	}
	return list
}

// setFromFile reads a secret from the file named.
func (t *table) setFromFile(k key, v value) {
	t.files[k.target()], t.secrets[k.target()] = v.text, v.text
	text, err := readSecret(v.text, t.open)
	if err != nil {
		t.refused[k.target()] = true
		t.complain(fault.ConfigUnreadable, v.where, "%s: %w", k.path, err)
		return
	}
	if text == "" {
		err = errors.New("there is nothing")
	} else {
		err = t.parse(k, text)
	}
	if err != nil {
		t.refuse(k, v.where, fmt.Errorf("in %s: %w", v.text, err))
	}
}

// readSecret reads a file that holds one value; a newline at its end is not part of it.
func readSecret(path string, open func(string) ([]byte, error)) (string, error) {
	data, err := open(path)
	return strings.TrimRight(string(data), "\r\n"), err
}

// refuse complains of a key's value.
func (t *table) refuse(k key, where string, err error) {
	t.refused[k.target()] = true
	t.complain(fault.ConfigBadValue, where, "%s: %w", k.path, err)
}

// complain notes an error, and its place.
func (t *table) complain(code fault.Code, where, format string, args ...any) {
	t.complaints = append(t.complaints, fault.New(code, &Complaint{Where: where, Err: fmt.Errorf(format, args...)}))
}

// A Complaint is what is wrong with a configuration, and where: file:line, the name of a variable,
// or "by default".
type Complaint struct {
	Where string
	Err   error
}

// Error returns both in one line.
func (c *Complaint) Error() string { return c.Where + ": " + c.Err.Error() }

// Unwrap returns what is wrong.
func (c *Complaint) Unwrap() error { return c.Err }

// byDefault is the place of a value that no source has set.
const byDefault = "by default"

// refuseValue complains of a value that no tag could judge.
func (t *table) refuseValue(path string, err error) {
	t.refuse(t.key(path), cmp.Or(t.origin[path], byDefault), err)
}

// conflict complains of two keys where contradict is true, unless one of them has been complained
// of already.
func (t *table) conflict(contradict bool, a, b, why string) {
	if !contradict || t.refused[a] || t.refused[b] {
		return
	}
	side := func(path string) string {
		return fmt.Sprintf("%s is %s (%s)", path, cmp.Or(t.key(path).text(), `""`), cmp.Or(t.origin[path], byDefault))
	}
	t.complain(fault.ConfigConflict, cmp.Or(t.origin[a], t.origin[b], byDefault), "%s, but %s: %s", side(a), side(b), why)
}

// key returns the key at path; there must be one.
func (t *table) key(path string) key {
	return t.keys[slices.IndexFunc(t.keys, func(k key) bool { return k.path == path })]
}

// err returns all complaints joined, or nil.
func (t *table) err() error { return errors.Join(t.complaints...) }
