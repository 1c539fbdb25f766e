package expr

import (
	"errors"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"github.com/mongostream/streamer/change"
)

// errKey says what fields can be looked up by.
var errKey = errors.New("the fields of a document have strings for names")

var (
	_ traits.Mapper   = (*docView)(nil)
	_ traits.Foldable = (*docView)(nil)
	_ traits.Lister   = (*listView)(nil)
	_ traits.Foldable = (*listView)(nil)
	_ traits.Mapper   = absent{}
)

// A docView is a lazy view of a document as a CEL map. A missing field reads as absent, like null.
// It aliases the event.
type docView struct {
	raw   []byte
	meter *costMeter
}

// Has returns whether the document has the field, which may be null.
func (d *docView) Has(name string) ref.Val {
	v, walked, err := findField(d.raw, name)
	d.meter.Charge(walked)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Bool(!v.IsZero())
}

// Find implements traits.Mapper: every field is found; a missing one is absent.
func (d *docView) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.WrapErr(errKey), false
	}
	v, walked, err := findField(d.raw, string(name))
	d.meter.Charge(walked)
	if err != nil {
		return types.WrapErr(err), false
	}
	return toCEL(v, d.meter), true
}

// Get implements traits.Indexer.
func (d *docView) Get(key ref.Val) ref.Val {
	v, _ := d.Find(key)
	return v
}

// Contains implements traits.Container.
func (d *docView) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.False
	}
	return d.Has(string(name))
}

// Fold implements traits.Foldable: comprehensions walk the document once.
func (d *docView) Fold(f traits.Folder) {
	fold(d.raw, d.meter, func(_ int, name []byte, v change.Value) bool {
		d.meter.ChargeBytes(len(name))
		return f.FoldEntry(types.String(name), toCEL(v, d.meter))
	})
}

// Iterator implements traits.Iterable over the names.
func (d *docView) Iterator() traits.Iterator {
	var names []ref.Val
	fold(d.raw, d.meter, func(_ int, name []byte, _ change.Value) bool {
		d.meter.ChargeBytes(len(name))
		names = append(names, types.String(name))
		return true
	})
	return iterate(names)
}

// Size implements traits.Sizer.
func (d *docView) Size() ref.Val { return types.Int(count(d.raw, d.meter)) }

// Equal implements ref.Val.
func (d *docView) Equal(other ref.Val) ref.Val { return equals(d, other) }

// Type implements ref.Val.
func (d *docView) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (d *docView) Value() any { return d.raw }

// ConvertToNative implements ref.Val.
func (d *docView) ConvertToNative(reflect.Type) (any, error) { return nil, errConversion }

// ConvertToType implements ref.Val.
func (d *docView) ConvertToType(t ref.Type) ref.Val { return convert(d, t) }

// A listView is a view of an array as a CEL list.
type listView struct {
	raw   []byte
	meter *costMeter
}

// Get implements traits.Indexer.
func (l *listView) Get(index ref.Val) ref.Val {
	i, err := types.GetOrError(index)
	if err != nil {
		return types.WrapErr(err)
	}
	found := types.NewErr("index out of bounds: %d", i)
	fold(l.raw, l.meter, func(at int, _ []byte, v change.Value) bool {
		if at == i {
			found = toCEL(v, l.meter)
		}
		return at < i
	})
	return found
}

// Contains implements traits.Container.
func (l *listView) Contains(elem ref.Val) ref.Val { return contains(elem, l) }

// Add implements traits.Adder.
func (l *listView) Add(other ref.Val) ref.Val {
	return types.NewRefValList(types.DefaultTypeAdapter, l.values()).Add(other)
}

// Fold implements traits.Foldable.
func (l *listView) Fold(f traits.Folder) {
	fold(l.raw, l.meter, func(at int, _ []byte, v change.Value) bool {
		return f.FoldEntry(types.Int(at), toCEL(v, l.meter))
	})
}

// Iterator implements traits.Iterable.
func (l *listView) Iterator() traits.Iterator { return iterate(l.values()) }

// Size implements traits.Sizer.
func (l *listView) Size() ref.Val { return types.Int(count(l.raw, l.meter)) }

// Equal implements ref.Val.
func (l *listView) Equal(other ref.Val) ref.Val { return equals(l, other) }

// Type implements ref.Val.
func (l *listView) Type() ref.Type { return types.ListType }

// Value implements ref.Val.
func (l *listView) Value() any { return l.raw }

// ConvertToNative implements ref.Val.
func (l *listView) ConvertToNative(reflect.Type) (any, error) { return nil, errConversion }

// ConvertToType implements ref.Val.
func (l *listView) ConvertToType(t ref.Type) ref.Val { return convert(l, t) }

func (l *listView) values() []ref.Val {
	var values []ref.Val
	fold(l.raw, l.meter, func(_ int, _ []byte, v change.Value) bool {
		values = append(values, toCEL(v, l.meter))
		return true
	})
	return values
}

// fold passes the elements of a document or array to yield until that returns false. Malformed
// bytes end the evaluation with an error.
func fold(raw []byte, meter *costMeter, yield func(at int, name []byte, v change.Value) bool) {
	at := First
	for i := 0; ; i++ {
		name, v, next, err := change.Element(raw, at)
		if err != nil {
			panic(interpreter.EvalCancelledError{Message: errMalformed.Error()})
		}
		meter.Charge(1)
		if name == nil || !yield(i, name, v) {
			return
		}
		at = next
	}
}

func count(raw []byte, meter *costMeter) int {
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
