package query

import (
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// maxPadding is how far beyond its end an array may be extended by setting an element.
const maxPadding = 1_500_000

// Apply makes a new document from old, which stays as it is. The _id of a document cannot change; an insert
// may set it.
func (u *Update) Apply(old bsoncore.Document, c UpdateContext) (UpdateResult, error) {
	r, err := u.apply(old, c)
	if err != nil {
		return UpdateResult{}, err
	}
	before, had := doc.Field(old, "_id")
	after, has := doc.Field(r.Doc, "_id")
	if had && (!has || !equal(before, after)) {
		return UpdateResult{}, u.immutable(after)
	}
	return r, nil
}

func (u *Update) immutable(after bsoncore.Value) error {
	if u.replacement == nil && u.pipeline == nil {
		return wire.Errorf(wire.ImmutableField, "Performing an update on the path '_id' would modify the immutable field '_id'")
	}
	return wire.Errorf(wire.ImmutableField, "After applying the update, the (immutable) field '_id' was found to have been altered to %s", doc.Element("_id", after))
}

func (u *Update) apply(old bsoncore.Document, c UpdateContext) (UpdateResult, error) {
	switch {
	case u.replacement != nil:
		next := withID(u.replacement, old)
		return UpdateResult{Doc: next, Whole: true, Changed: string(next) != string(old)}, nil
	case u.pipeline != nil:
		next, err := u.runPipeline(old, c)
		return UpdateResult{Doc: next, Whole: true, Changed: string(next) != string(old)}, err
	default:
		return u.modify(old, c)
	}
}

// withID puts the _id first: the document's own, or else that of old.
func withID(d, old bsoncore.Document) bsoncore.Document {
	b := doc.New()
	id, own := doc.Field(d, "_id")
	if !own {
		id, own = doc.Field(old, "_id")
	}
	if own {
		b.Value("_id", id)
	}
	for name, v := range doc.All(d) {
		if name != "_id" {
			b.Value(name, v)
		}
	}
	return b.Document()
}

func (u *Update) modify(old bsoncore.Document, c UpdateContext) (UpdateResult, error) {
	m := &modification{context: c, root: newTree(old), updated: doc.New()}
	for _, one := range u.modifiers {
		if one.op == "$setOnInsert" && !c.Insert {
			continue
		}
		if err := m.apply(one); err != nil {
			return UpdateResult{}, err
		}
	}
	if !m.changed {
		return UpdateResult{Doc: old}, nil
	}
	r := UpdateResult{
		Doc: m.root.current().Data, Changed: true, Updated: m.updated.Document(), Removed: m.removed,
	}
	if m.ambiguous != nil {
		r.Disambiguated = m.ambiguous.Document()
	}
	return r, nil
}

// modification is one document on its way through the modifiers.
type modification struct {
	context   UpdateContext
	root      *updateTree
	changed   bool
	updated   *doc.Builder
	removed   []string
	ambiguous *doc.Builder
}

func (m *modification) apply(one modifier) error {
	at := m.root
	numericName := false
	for i, part := range one.path {
		if !at.container() || at.isArray() && !isIndex(part) {
			if one.op == "$unset" {
				return nil
			}
			return wire.Errorf(wire.PathNotViable, "Cannot create field '%s' in element {%s}", part, doc.Element(at.name, at.current()))
		}
		numericName = numericName || !at.isArray() && isIndex(part)
		last := i == len(one.path)-1
		kid := at.child(part)
		var err error
		switch {
		case kid == nil && one.op == "$unset":
			return nil
		case kid == nil:
			numericName = numericName || slices.ContainsFunc(one.path[i+1:], isIndex)
			err = m.create(at, one, i)
		case last && one.op == "$unset":
			at.remove(part)
			m.changed = true
			m.removed = append(m.removed, one.String())
		case last:
			err = m.change(kid, one)
		default:
			at = kid
			continue
		}
		if err == nil && numericName {
			m.note(one)
		}
		return err
	}
	return nil
}

// create adds the rest of the path, from its part i on.
func (m *modification) create(at *updateTree, one modifier, i int) error {
	if index, err := strconv.Atoi(one.path[i]); at.isArray() && (err != nil || index > maxPadding) {
		return wire.Errorf(wire.CannotBackfillArray, "can't backfill more than %d elements", maxPadding)
	}
	v, err := m.initial(one)
	if err != nil {
		return err
	}
	m.set(one.String(), v)
	for j := len(one.path) - 1; j > i; j-- {
		v = bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: doc.New().Value(one.path[j], v).Bytes()}
	}
	at.add(one.path[i], v)
	return nil
}

func (m *modification) set(path string, v bsoncore.Value) {
	m.changed = true
	m.updated.Value(path, v)
}

// initial is the value of a field that was missing.
func (m *modification) initial(one modifier) (bsoncore.Value, error) {
	switch one.op {
	case "$push":
		return Array([]bsoncore.Value{one.arg}), nil
	case "$currentDate":
		return m.now(one)
	default:
		return one.arg, nil
	}
}

func (m *modification) now(one modifier) (bsoncore.Value, error) {
	timestamp, err := one.wantsTimestamp()
	if err != nil {
		return bsoncore.Value{}, err
	}
	if timestamp {
		ts := m.context.ClusterTime
		return bsoncore.Value{Type: bsoncore.TypeTimestamp, Data: bsoncore.AppendTimestamp(nil, uint32(ts>>32), uint32(ts))}, nil
	}
	return bsoncore.Value{Type: bsoncore.TypeDateTime, Data: bsoncore.AppendInt64(nil, m.context.NowMS)}, nil
}

// change applies an operator to a field that exists.
func (m *modification) change(at *updateTree, one modifier) error {
	before := at.current()
	if one.op == "$push" {
		return m.push(at, before, one)
	}
	after, err := m.next(before, at.name, one)
	if err != nil || Same(before, after) {
		return err
	}
	at.set(after)
	m.set(one.String(), after)
	return nil
}

func (m *modification) next(before bsoncore.Value, name string, one modifier) (bsoncore.Value, error) {
	switch one.op {
	case "$inc":
		if !before.IsNumber() {
			return before, wire.Errorf(wire.TypeMismatch, "Cannot apply $inc to a value of non-numeric type. {%s} has the field '%s' of non-numeric type %s",
				m.id(), name, doc.TypeName(before.Type))
		}
		after, ok := sumOf(before, one.arg)
		if !ok {
			return before, wire.Errorf(wire.BadValue, "Failed to apply $inc operations to current value (%s) for document {%s}", doc.Literal(before), m.id())
		}
		return after, nil
	case "$max":
		if Compare(one.arg, before) > 0 {
			return one.arg, nil
		}
		return before, nil
	case "$min":
		if Compare(one.arg, before) < 0 {
			return one.arg, nil
		}
		return before, nil
	case "$currentDate":
		return m.now(one)
	default:
		return one.arg, nil
	}
}

func (m *modification) push(at *updateTree, before bsoncore.Value, one modifier) error {
	if before.Type != bsoncore.TypeArray {
		return wire.Errorf(wire.BadValue, "The field '%s' must be an array but is of type %s in document {%s}", one, doc.TypeName(before.Type), m.id())
	}
	index := strconv.Itoa(doc.Len(before.Data))
	at.add(index, one.arg)
	m.set(one.String()+"."+index, one.arg)
	return nil
}

func (m *modification) id() string {
	v := bsoncore.Value{Type: bsoncore.TypeNull}
	if k := m.root.child("_id"); k != nil {
		v = k.current()
	}
	return doc.Element("_id", v)
}

// note remembers a path in which a number is a field's name.
func (m *modification) note(one modifier) {
	if m.ambiguous == nil {
		m.ambiguous = doc.New()
	}
	m.ambiguous.OpenArray(one.String())
	at := m.root
	for i, part := range one.path {
		if n, err := strconv.Atoi(part); at != nil && at.isArray() && err == nil {
			m.ambiguous.Int32(doc.Index(i), int32(n))
		} else {
			m.ambiguous.String(doc.Index(i), part)
		}
		if at != nil && at.container() {
			at = at.child(part)
		}
	}
	m.ambiguous.End()
}

func isIndex(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == "" && (s == "0" || s[0] != '0')
}

// Truncation is an array that lost elements at its end.
type Truncation struct {
	Field   string
	NewSize int32
}

// Describe turns a document that a pipeline computed into a list of changed fields, as servers since 5.0 log
// it; it returns the arrays that became shorter.
func (r *UpdateResult) Describe(old bsoncore.Document) []Truncation {
	d := &diff{updated: doc.New()}
	d.documents(nil, old, r.Doc)
	r.Whole, r.Updated, r.Removed = false, d.updated.Document(), d.removed
	if d.ambiguous != nil {
		r.Disambiguated = d.ambiguous.Document()
	}
	return d.truncated
}

type diff struct {
	updated   *doc.Builder
	removed   []string
	truncated []Truncation
	ambiguous *doc.Builder
}

// step is one part of a path: a field's name or an array's index.
type step struct {
	name  string
	index bool
}

func (d *diff) documents(at []step, old, next []byte) {
	for name, v := range doc.All(next) {
		path := append(slices.Clone(at), step{name: name})
		if before, ok := doc.Field(old, name); ok {
			d.values(path, before, v)
		} else {
			d.updated.Value(d.path(path), v)
		}
	}
	for name := range doc.All(old) {
		if _, ok := doc.Field(next, name); !ok {
			d.removed = append(d.removed, d.path(append(slices.Clone(at), step{name: name})))
		}
	}
}

func (d *diff) values(at []step, old, next bsoncore.Value) {
	switch {
	case Same(old, next):
	case old.Type == bsoncore.TypeEmbeddedDocument && next.Type == bsoncore.TypeEmbeddedDocument:
		d.documents(at, old.Data, next.Data)
	case old.Type == bsoncore.TypeArray && next.Type == bsoncore.TypeArray:
		d.arrays(at, old.Data, next.Data)
	default:
		d.updated.Value(d.path(at), next)
	}
}

func (d *diff) arrays(at []step, old, next []byte) {
	before, after := slices.Collect(doc.Values(old)), slices.Collect(doc.Values(next))
	for i, v := range after {
		path := append(slices.Clone(at), step{name: strconv.Itoa(i), index: true})
		if i < len(before) {
			d.values(path, before[i], v)
		} else {
			d.updated.Value(d.path(path), v)
		}
	}
	if len(after) < len(before) {
		d.truncated = append(d.truncated, Truncation{Field: d.path(at), NewSize: int32(len(after))})
	}
}

// path joins the steps; a name that could be taken for something else is explained.
func (d *diff) path(at []step) string {
	var names []string
	ambiguous := false
	for _, s := range at {
		names = append(names, s.name)
		ambiguous = ambiguous || !s.index && (isIndex(s.name) || strings.Contains(s.name, "."))
	}
	joined := strings.Join(names, ".")
	if ambiguous {
		d.explain(joined, at)
	}
	return joined
}

func (d *diff) explain(joined string, at []step) {
	if d.ambiguous == nil {
		d.ambiguous = doc.New()
	}
	d.ambiguous.OpenArray(joined)
	for i, s := range at {
		if n, err := strconv.Atoi(s.name); s.index && err == nil {
			d.ambiguous.Int32(doc.Index(i), int32(n))
		} else {
			d.ambiguous.String(doc.Index(i), s.name)
		}
	}
	d.ambiguous.End()
}

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
