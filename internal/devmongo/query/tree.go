package query

import (
	"strconv"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
)

// updateTree is a document or an array that can be changed. Its elements are parsed when they are first needed.
type updateTree struct {
	name  string
	value bsoncore.Value // as it was read; stale once open
	kids  []*updateTree
	open  bool
}

func newTree(d bsoncore.Document) *updateTree {
	return &updateTree{value: bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: d}}
}

func (t *updateTree) isArray() bool { return t.value.Type == bsoncore.TypeArray }

func (t *updateTree) container() bool {
	return t.isArray() || t.value.Type == bsoncore.TypeEmbeddedDocument
}

func (t *updateTree) expand() {
	if t.open {
		return
	}
	for name, v := range doc.All(t.value.Data) {
		t.kids = append(t.kids, &updateTree{name: name, value: v})
	}
	t.open = true
}

func (t *updateTree) child(name string) *updateTree {
	t.expand()
	for _, k := range t.kids {
		if k.name == name {
			return k
		}
	}
	return nil
}

// add appends an element; in an array it fills up to the index with nulls.
func (t *updateTree) add(name string, v bsoncore.Value) *updateTree {
	t.expand()
	if t.isArray() {
		index, _ := strconv.Atoi(name)
		for len(t.kids) < index {
			null := bsoncore.Value{Type: bsoncore.TypeNull}
			t.kids = append(t.kids, &updateTree{name: strconv.Itoa(len(t.kids)), value: null})
		}
	}
	k := &updateTree{name: name, value: v}
	t.kids = append(t.kids, k)
	return k
}

func (t *updateTree) remove(name string) {
	for i, k := range t.kids {
		if k.name != name {
			continue
		}
		if t.isArray() { // a hole stays, as null
			k.set(bsoncore.Value{Type: bsoncore.TypeNull})
			return
		}
		t.kids = append(t.kids[:i], t.kids[i+1:]...)
		return
	}
}

func (t *updateTree) set(v bsoncore.Value) { t.value, t.kids, t.open = v, nil, false }

// current is the value as it stands.
func (t *updateTree) current() bsoncore.Value {
	if !t.open {
		return t.value
	}
	b := doc.New()
	for _, k := range t.kids {
		b.Value(k.name, k.current())
	}
	return bsoncore.Value{Type: t.value.Type, Data: b.Bytes()}
}
