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

// Apply makes a new document from old, which stays as it is. The _id of a document cannot change;
// an insert may set it.
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
	m := &modification{context: c, old: old, root: newTree(old)}
	for _, one := range u.modifiers {
		if one.op == "$setOnInsert" && !c.Insert {
			continue
		}
		all, err := m.concrete(u, one)
		if err != nil {
			return UpdateResult{}, err
		}
		first := len(m.log)
		for _, one := range all {
			if err := m.apply(one); err != nil {
				return UpdateResult{}, err
			}
		}
		if len(all) > 1 {
			m.whole(first)
		}
	}
	if len(m.log) == 0 {
		return UpdateResult{Doc: old}, nil
	}
	return m.result(), nil
}

// modification is one document on its way through the modifiers.
type modification struct {
	context UpdateContext
	old     bsoncore.Document
	root    *updateTree
	log     []logged
}

// logged is a field that has changed, as the oplog names it.
type logged struct {
	path    []string
	value   bsoncore.Value
	removed bool
}

// result describes the changes.
func (m *modification) result() UpdateResult {
	r := UpdateResult{Doc: m.root.current().Data, Changed: true}
	updated, ambiguous := doc.New(), doc.New()
	for _, one := range m.log {
		name := strings.Join(one.path, ".")
		if one.removed {
			r.Removed = append(r.Removed, name)
		} else {
			updated.Value(name, one.value)
		}
		m.explain(ambiguous, name, one.path)
	}
	r.Updated = updated.Document()
	if d := ambiguous.Document(); !doc.Empty(d) {
		r.Disambiguated = d
	}
	return r
}

func (m *modification) apply(one modifier) error {
	at := m.root
	for i, part := range one.path {
		if !at.container() || at.isArray() && !isIndex(part) {
			if one.culls() {
				return nil
			}
			return wire.Errorf(wire.PathNotViable, "Cannot create field '%s' in element {%s}", part, doc.Element(at.name, at.current()))
		}
		last := i == len(one.path)-1
		kid := at.child(part)
		switch {
		case kid == nil && one.culls():
			return nil
		case kid == nil:
			return m.create(at, one, i)
		case last && (one.op == "$unset" || one.op == removal):
			at.remove(part)
			m.log = append(m.log, logged{path: one.path, removed: true})
			return nil
		case last:
			return m.change(kid, one)
		}
		at = kid
	}
	return nil
}

// create adds the rest of the path, from its part i on.
func (m *modification) create(at *updateTree, one modifier, i int) error {
	if index, err := strconv.Atoi(one.path[i]); at.isArray() && (err != nil || index > maxPadding) {
		return wire.Errorf(wire.CannotBackfillArray, "can't backfill more than %d elements", maxPadding)
	}
	v, err := m.initial(one)
	if err != nil || v.Type == 0 {
		return err
	}
	path := one.path
	leaf := v
	for j := len(one.path) - 1; j > i; j-- {
		v = bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: doc.New().Value(one.path[j], v).Bytes()}
	}
	at.add(one.path[i], v)
	if m.context.Deltas {
		path = one.path[:i+1]
		leaf = v
	}
	m.set(path, leaf)
	return nil
}

func (m *modification) set(path []string, v bsoncore.Value) {
	m.log = append(m.log, logged{path: path, value: v})
}

// whole logs an array as a whole where an update of its elements has changed several: that of all
// changes since the first.
func (m *modification) whole(first int) {
	changes := m.log[first:]
	if len(changes) < 2 {
		return
	}
	common := changes[0].path
	for _, one := range changes[1:] {
		n := 0
		for n < min(len(common), len(one.path)) && common[n] == one.path[n] {
			n++
		}
		common = common[:n]
	}
	at := m.root.find(common)
	if at == nil || !at.isArray() {
		return
	}
	m.log = append(m.log[:first], logged{path: common, value: at.current()})
}

// initial is the value of a field that was missing; zero where the operator does not make it.
func (m *modification) initial(one modifier) (bsoncore.Value, error) {
	switch one.op {
	case "$push":
		p, err := one.pushed()
		return Array(p.apply(nil)), err
	case "$addToSet":
		list, _, err := m.array(nil, one)
		return Array(list), err
	case "$mul":
		return zeroOf(one.arg), nil
	case "$bit":
		return one.bits(bsoncore.Value{Type: bsoncore.TypeInt32, Data: bsoncore.AppendInt32(nil, 0)})
	case "$rename":
		return m.renamed(one), nil
	case "$currentDate":
		return m.now(one)
	default:
		return one.arg, nil
	}
}

// renamed returns the value of the field that a $rename names, zero if there is none.
func (m *modification) renamed(one modifier) bsoncore.Value {
	at := newTree(m.old).find(strings.Split(one.arg.StringValue(), "."))
	if at == nil {
		return bsoncore.Value{}
	}
	return at.current()
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
	switch one.op {
	case "$push", "$addToSet", "$pop", "$pull", "$pullAll":
		return m.changeArray(at, before, one)
	}
	after, err := m.next(before, at.name, one)
	if err != nil || Same(before, after) {
		return err
	}
	at.set(after)
	m.set(one.path, after)
	return nil
}

func (m *modification) next(before bsoncore.Value, name string, one modifier) (bsoncore.Value, error) {
	switch one.op {
	case "$inc", "$mul":
		return m.computed(before, name, one)
	case "$bit":
		if _, ok := integer(before); !ok {
			return before, wire.Errorf(wire.BadValue, "Cannot apply $bit to a value of non-integral type.{%s} has the field %s of non-integer type %s",
				m.id(), name, doc.TypeName(before.Type))
		}
		return one.bits(before)
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
	case "$rename":
		if v := m.renamed(one); v.Type != 0 {
			return v, nil
		}
		return before, nil
	case "$currentDate":
		return m.now(one)
	default:
		return one.arg, nil
	}
}

// computed is what $inc and $mul make of a value.
func (m *modification) computed(before bsoncore.Value, name string, one modifier) (bsoncore.Value, error) {
	if !before.IsNumber() {
		return before, wire.Errorf(wire.TypeMismatch, "Cannot apply %s to a value of non-numeric type. {%s} has the field '%s' of non-numeric type %s",
			one.op, m.id(), name, doc.TypeName(before.Type))
	}
	compute := sumOf
	if one.op == "$mul" {
		compute = productOf
	}
	after, ok := compute(before, one.arg)
	if !ok {
		return before, wire.Errorf(wire.BadValue, "Failed to apply %s operations to current value (%s) for document {%s}", one.op, doc.Literal(before), m.id())
	}
	return after, nil
}

// changeArray applies an operator on arrays. Elements that are only added at the end are logged by
// their indexes, everything else as the whole array.
func (m *modification) changeArray(at *updateTree, before bsoncore.Value, one modifier) error {
	if before.Type != bsoncore.TypeArray {
		return wire.Errorf(wire.BadValue, "The field '%s' must be an array but is of type %s in document {%s}", one, doc.TypeName(before.Type), m.id())
	}
	list := slices.Collect(doc.Values(before.Data))
	if one.op != "$push" {
		after, changed, err := m.array(list, one)
		if err == nil && changed {
			at.set(Array(after))
			m.set(one.path, at.current())
		}
		return err
	}
	p, err := one.pushed()
	if err != nil {
		return err
	}
	if p.appends() {
		for i, v := range p.elements {
			index := strconv.Itoa(len(list) + i)
			at.add(index, v)
			m.set(append(slices.Clone(one.path), index), v)
		}
		return nil
	}
	if after := Array(p.apply(list)); !Same(before, after) {
		at.set(after)
		m.set(one.path, after)
	}
	return nil
}

func (m *modification) id() string {
	v := bsoncore.Value{Type: bsoncore.TypeNull}
	if k := m.root.child("_id"); k != nil {
		v = k.current()
	}
	return doc.Element("_id", v)
}

// explain adds a path in which a number, or a name with a dot, is a field's name.
func (m *modification) explain(b *doc.Builder, name string, path []string) {
	ambiguous := false
	at := m.root
	steps := doc.New()
	for i, part := range path {
		if n, err := strconv.Atoi(part); at != nil && at.isArray() && err == nil {
			steps.Int32(doc.Index(i), int32(n))
		} else {
			steps.String(doc.Index(i), part)
			ambiguous = ambiguous || isIndex(part)
		}
		if at != nil && at.container() {
			at = at.child(part)
		}
	}
	if ambiguous {
		b.Value(name, bsoncore.Value{Type: bsoncore.TypeArray, Data: steps.Bytes()})
	}
}

func isIndex(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == "" && (s == "0" || s[0] != '0')
}

// Truncation is an array that lost elements at its end.
type Truncation struct {
	Field   string
	NewSize int32
}

// Describe turns a document that a pipeline computed into a list of changed fields, as servers
// since 5.0 log it; it returns the arrays that became shorter.
func (r *UpdateResult) Describe(old bsoncore.Document) []Truncation {
	d := &diff{updated: doc.New()}
	d.documents(nil, old, r.Doc)
	r.Whole = false
	r.Updated = d.updated.Document()
	r.Removed = d.removed
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

// updateTree is a document or an array that can be changed. Its elements are parsed when they are
// first needed.
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

// current is the present value.
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
