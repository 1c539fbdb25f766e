package celval

import (
	"errors"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/match/bsonval"
)

// errKey says what fields can be looked up by.
var errKey = errors.New("the fields of a document have strings for names")

var (
	_ traits.Mapper   = (*View)(nil)
	_ traits.Foldable = (*View)(nil)
	_ traits.Lister   = (*ListView)(nil)
	_ traits.Foldable = (*ListView)(nil)
	_ traits.Mapper   = absent{}
)

// A View is a document as CEL sees it: a map of which nothing is read before it is asked for. A field that is not there reads as
// absent, like null. It aliases the event.
type View struct {
	raw   []byte
	meter *Meter
}

// Has returns whether the document has the field; a null is there.
func (d *View) Has(name string) ref.Val {
	v, walked, err := bsonval.Find(d.raw, name)
	d.meter.Charge(walked)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Bool(!v.IsZero())
}

// Find implements traits.Mapper: every field is found, absent if need be.
func (d *View) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.WrapErr(errKey), false
	}
	v, walked, err := bsonval.Find(d.raw, string(name))
	d.meter.Charge(walked)
	if err != nil {
		return types.WrapErr(err), false
	}
	return Val(v, d.meter), true
}

// Get implements traits.Indexer.
func (d *View) Get(key ref.Val) ref.Val {
	v, _ := d.Find(key)
	return v
}

// Contains implements traits.Container.
func (d *View) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.False
	}
	return d.Has(string(name))
}

// Fold implements traits.Foldable: comprehensions walk the document once.
func (d *View) Fold(f traits.Folder) {
	fold(d.raw, d.meter, func(_ int, name []byte, v change.Value) bool {
		d.meter.ChargeBytes(len(name))
		return f.FoldEntry(types.String(name), Val(v, d.meter))
	})
}

// Iterator implements traits.Iterable for who does not fold: over the names.
func (d *View) Iterator() traits.Iterator {
	var names []ref.Val
	fold(d.raw, d.meter, func(_ int, name []byte, _ change.Value) bool {
		d.meter.ChargeBytes(len(name))
		names = append(names, types.String(name))
		return true
	})
	return iterate(names)
}

// Size implements traits.Sizer.
func (d *View) Size() ref.Val { return types.Int(count(d.raw, d.meter)) }

// Equal implements ref.Val.
func (d *View) Equal(other ref.Val) ref.Val { return Equal(d, other) }

// Type implements ref.Val.
func (d *View) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (d *View) Value() any { return d.raw }

// ConvertToNative implements ref.Val.
func (d *View) ConvertToNative(reflect.Type) (any, error) { return nil, errConversion }

// ConvertToType implements ref.Val.
func (d *View) ConvertToType(t ref.Type) ref.Val { return convert(d, t) }

// A ListView is an array as CEL sees it.
type ListView struct {
	raw   []byte
	meter *Meter
}

// Get implements traits.Indexer.
func (l *ListView) Get(index ref.Val) ref.Val {
	i, err := types.GetOrError(index)
	if err != nil {
		return types.WrapErr(err)
	}
	found := types.NewErr("index out of bounds: %d", i)
	fold(l.raw, l.meter, func(at int, _ []byte, v change.Value) bool {
		if at == i {
			found = Val(v, l.meter)
		}
		return at < i
	})
	return found
}

// Contains implements traits.Container.
func (l *ListView) Contains(elem ref.Val) ref.Val { return In(elem, l) }

// Add implements traits.Adder.
func (l *ListView) Add(other ref.Val) ref.Val {
	return types.NewRefValList(types.DefaultTypeAdapter, l.values()).Add(other)
}

// Fold implements traits.Foldable.
func (l *ListView) Fold(f traits.Folder) {
	fold(l.raw, l.meter, func(at int, _ []byte, v change.Value) bool {
		return f.FoldEntry(types.Int(at), Val(v, l.meter))
	})
}

// Iterator implements traits.Iterable.
func (l *ListView) Iterator() traits.Iterator { return iterate(l.values()) }

// Size implements traits.Sizer.
func (l *ListView) Size() ref.Val { return types.Int(count(l.raw, l.meter)) }

// Equal implements ref.Val.
func (l *ListView) Equal(other ref.Val) ref.Val { return Equal(l, other) }

// Type implements ref.Val.
func (l *ListView) Type() ref.Type { return types.ListType }

// Value implements ref.Val.
func (l *ListView) Value() any { return l.raw }

// ConvertToNative implements ref.Val.
func (l *ListView) ConvertToNative(reflect.Type) (any, error) { return nil, errConversion }

// ConvertToType implements ref.Val.
func (l *ListView) ConvertToType(t ref.Type) ref.Val { return convert(l, t) }

func (l *ListView) values() []ref.Val {
	var values []ref.Val
	fold(l.raw, l.meter, func(_ int, _ []byte, v change.Value) bool {
		values = append(values, Val(v, l.meter))
		return true
	})
	return values
}

// fold hands the elements of a document or array to yield while it says true. Malformed bytes end the evaluation with an error.
func fold(raw []byte, meter *Meter, yield func(at int, name []byte, v change.Value) bool) {
	at := bsonval.First
	for i := 0; ; i++ {
		name, v, next, err := change.Element(raw, at)
		if err != nil {
			panic(interpreter.EvalCancelledError{Message: bsonval.ErrMalformed.Error()})
		}
		meter.Charge(1)
		if name == nil || !yield(i, name, v) {
			return
		}
		at = next
	}
}

func count(raw []byte, meter *Meter) int {
	n := 0
	fold(raw, meter, func(int, []byte, change.Value) bool {
		n++
		return true
	})
	return n
}

func iterate(values []ref.Val) traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, values).Iterator()
}
