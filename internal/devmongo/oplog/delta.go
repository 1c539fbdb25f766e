package oplog

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
)

// buildDelta makes the diff of a $v: 2 update from dotted paths. Names made of digits are taken for array indexes,
// which they nearly always are.
func buildDelta(set, removed, truncated []byte) bsoncore.Document {
	root := &deltaBranch{}
	for path, v := range doc.All(set) {
		root.at(path).updates = append(root.at(path).updates, deltaField{leaf(path), v})
	}
	for v := range doc.Values(removed) {
		path := v.StringValue()
		b := root.at(path)
		b.deletes = append(b.deletes, leaf(path))
	}
	for v := range doc.Values(truncated) {
		field, _ := doc.Field(v.Data, "field")
		size, _ := doc.Field(v.Data, "newSize")
		b := root.at(field.StringValue() + ".0")
		b.size, b.array = size.Int32(), true
		b.truncated = true
	}
	return root.document()
}

type deltaField struct {
	name  string
	value bsoncore.Value
}

// deltaBranch is one level of a delta.
type deltaBranch struct {
	name      string
	array     bool
	truncated bool
	size      int32
	updates   []deltaField
	deletes   []string
	kids      []*deltaBranch
}

func leaf(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// at is the branch that holds the last name of the path.
func (b *deltaBranch) at(path string) *deltaBranch {
	for {
		name, rest, more := strings.Cut(path, ".")
		if strings.Trim(name, "0123456789") == "" {
			b.array = true
		}
		if !more {
			return b
		}
		b, path = b.kid(name), rest
	}
}

func (b *deltaBranch) kid(name string) *deltaBranch {
	for _, k := range b.kids {
		if k.name == name {
			return k
		}
	}
	k := &deltaBranch{name: name}
	b.kids = append(b.kids, k)
	return k
}

func (b *deltaBranch) document() bsoncore.Document {
	out := doc.New()
	if b.array {
		out.Bool("a", true)
		if b.truncated {
			out.Int32("l", b.size)
		}
		for _, u := range b.updates {
			out.Value("u"+u.name, u.value)
		}
	} else {
		if len(b.deletes) > 0 {
			out.Open("d")
			for _, name := range b.deletes {
				out.Bool(name, false)
			}
			out.End()
		}
		if len(b.updates) > 0 {
			out.Open("u")
			for _, u := range b.updates {
				out.Value(u.name, u.value)
			}
			out.End()
		}
	}
	for _, k := range b.kids {
		out.Doc("s"+k.name, k.document())
	}
	return out.Document()
}
