package query

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Projection keeps or drops fields. The nil Projection keeps everything.
type Projection struct {
	include bool
	tree    tree
	keepID  bool
}

// tree is a set of dotted paths: a name without children is a leaf.
type tree map[string]tree

// ParseProjection compiles a projection of plain inclusion or exclusion; an empty one gives nil.
func ParseProjection(d bsoncore.Document) (*Projection, error) {
	p := &projectionParser{Projection: Projection{tree: tree{}, keepID: true}}
	if err := p.document("", d); err != nil {
		return nil, err
	}
	if !p.decided {
		if p.keepID && !p.idNamed {
			return nil, nil
		}
		p.include = p.keepID
	}
	return &p.Projection, nil
}

type projectionParser struct {
	Projection
	decided, idNamed bool
}

func (p *projectionParser) document(prefix string, d []byte) error {
	for name, v := range doc.All(d) {
		full := prefix + name
		switch {
		case strings.HasPrefix(name, "$"):
			return wire.Errorf(wire.CommandNotSupported, "devmongo does not support the projection %s", name)
		case v.Type == bsoncore.TypeEmbeddedDocument && !doc.Empty(v.Data):
			if err := p.document(full+".", v.Data); err != nil {
				return err
			}
		case v.Type != bsoncore.TypeBoolean && class(v.Type) != 10:
			return wire.Errorf(wire.CommandNotSupported, "devmongo does not support computed fields in a projection: %s", full)
		default:
			if err := p.leaf(full, doc.Truth(v)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *projectionParser) leaf(name string, include bool) error {
	if name == "_id" {
		p.keepID = include
		p.idNamed = true
		return nil
	}
	if p.decided && p.include != include {
		if include {
			return wire.Errorf(31253, "Cannot do inclusion on field %s in exclusion projection", name)
		}
		return wire.Errorf(31254, "Cannot do exclusion on field %s in inclusion projection", name)
	}
	p.decided = true
	p.include = include
	return p.tree.add(name, parsePath(name))
}

func (t tree) add(name string, p path) error {
	child, known := t[p[0]]
	if p[0] == "" {
		return wire.Errorf(15998, "FieldPath field names may not be empty strings.")
	}
	if known && (len(child) == 0 || len(p) == 1) {
		return wire.Errorf(31249, "Path collision at %s", name)
	}
	if !known {
		child = tree{}
		t[p[0]] = child
	}
	if len(p) == 1 {
		return nil
	}
	return child.add(name, p[1:])
}

// Apply returns the projected document, in memory of its own.
func (p *Projection) Apply(d bsoncore.Document) bsoncore.Document {
	if p == nil {
		return d
	}
	b := doc.New()
	for name, v := range doc.All(d) {
		if name == "_id" && p.tree["_id"] == nil {
			if p.keepID {
				b.Value(name, v)
			}
			continue
		}
		p.field(b, p.tree, name, v)
	}
	return b.Document()
}

func (p *Projection) field(b *doc.Builder, t tree, name string, v bsoncore.Value) {
	child, named := t[name]
	isLeaf := named && len(child) == 0
	isHidden := !named && p.include || isLeaf && !p.include
	switch {
	case isHidden:
		return
	case !named || isLeaf:
		b.Value(name, v)
	case v.Type == bsoncore.TypeEmbeddedDocument:
		b.Open(name)
		for sub, value := range doc.All(v.Data) {
			p.field(b, child, sub, value)
		}
		b.End()
	case v.Type == bsoncore.TypeArray:
		b.OpenArray(name)
		p.array(b, child, v.Data)
		b.End()
	case !p.include:
		b.Value(name, v)
	}
}

// array projects the documents in an array; other elements stay in an exclusion and go in an
// inclusion.
func (p *Projection) array(b *doc.Builder, t tree, d []byte) {
	i := 0
	for v := range doc.Values(d) {
		switch {
		case v.Type == bsoncore.TypeEmbeddedDocument:
			b.Open(doc.Index(i))
			for name, value := range doc.All(v.Data) {
				p.field(b, t, name, value)
			}
			b.End()
		case v.Type == bsoncore.TypeArray:
			b.OpenArray(doc.Index(i))
			p.array(b, t, v.Data)
			b.End()
		case p.include:
			continue
		default:
			b.Value(doc.Index(i), v)
		}
		i++
	}
}
