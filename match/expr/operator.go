package expr

import (
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// maxDepth bounds the comparison of nested values; MongoDB stores at most 100 levels.
const maxDepth = 200

// equals is == for filters.
func equals(a, b ref.Val) ref.Val { return equal(nil, a, b, 0) }

// equal compares and charges the meter, also for CEL's own lists and maps, which may be much larger
// than the expression.
func equal(meter *costMeter, a, b ref.Val, depth int) ref.Val {
	if depth > maxDepth {
		return types.NewErr("values nested too deep to compare")
	}
	if s, ok := a.(types.String); ok { // the most common, without a copy
		t, ok := b.(types.String)
		meter.ChargeBytes(min(len(s), len(t)))
		return types.Bool(ok && s == t)
	}
	s, sOK := fromCEL(a)
	t, tOK := fromCEL(b)
	switch {
	case !sOK && !tOK:
		// Both are CEL's own. If one were ours, it would ask here again, without end.
		return types.Equal(a, b)
	case !sOK || !tOK:
		return types.False
	case s.Class == Document && t.Class == Document:
		return equalMaps(meter, a.(traits.Mapper), b.(traits.Mapper), depth)
	case s.Class == Array && t.Class == Array:
		return equalLists(meter, a.(traits.Lister), b.(traits.Lister), depth)
	}
	return types.Bool(s.Equal(t))
}

// equalMaps compares without regard to the order of fields, as CEL does.
func equalMaps(meter *costMeter, a, b traits.Mapper, depth int) ref.Val {
	if a.Size() != b.Size() {
		return types.False
	}
	for it := a.Iterator(); it.HasNext() == types.True; {
		meter.Charge(1)
		key := it.Next()
		other, found := b.Find(key)
		switch {
		case types.IsError(other):
			return other
		case !found || isAbsent(other) && b.Contains(key) != types.True:
			return types.False
		}
		if same := equal(meter, a.Get(key), other, depth+1); same != types.True {
			return same
		}
	}
	return types.True
}

func equalLists(meter *costMeter, a, b traits.Lister, depth int) ref.Val {
	if a.Size() != b.Size() {
		return types.False
	}
	for x, y := a.Iterator(), b.Iterator(); x.HasNext() == types.True && y.HasNext() == types.True; {
		meter.Charge(1)
		if same := equal(meter, x.Next(), y.Next(), depth+1); same != types.True {
			return same
		}
	}
	return types.True
}

// contains is the operator in: an element of an array, or a field of a document. An absent
// container contains nothing.
func contains(elem, container ref.Val) ref.Val { return in(nil, elem, container) }

func in(meter *costMeter, elem, container ref.Val) ref.Val {
	switch c := container.(type) {
	case absent, types.Null:
		return types.False
	case *docView:
		return c.Contains(elem)
	case traits.Mapper:
		switch elem.(type) {
		case types.String, types.Int, types.Uint, types.Double, types.Bool:
			_, found := c.Find(elem)
			return types.Bool(found)
		}
		// CEL's maps have no other keys, and panic when asked for them.
		return types.False
	case traits.Lister:
		return inList(meter, elem, c)
	}
	return types.NewErr("%s in %s has no meaning", className(elem), className(container))
}

// inList reports whether an element is equal, ignoring elements that cannot be compared.
func inList(meter *costMeter, elem ref.Val, list traits.Lister) ref.Val {
	var failed ref.Val = types.False
	for it := list.Iterator(); it.HasNext() == types.True; {
		meter.Charge(1)
		switch same := equal(meter, elem, it.Next(), 0); {
		case same == types.True:
			return types.True
		case types.IsError(same):
			failed = same
		}
	}
	return failed
}

// compare is <, <=, > or >=, as holds defines.
func compare(meter *costMeter, a, b ref.Val, function string, holds func(order int) bool) ref.Val {
	if s, ok := a.(types.String); ok {
		if t, ok := b.(types.String); ok {
			meter.ChargeBytes(min(len(s), len(t)))
			return types.Bool(holds(strings.Compare(string(s), string(t))))
		}
	}
	s, sOK := fromCEL(a)
	t, tOK := fromCEL(b)
	if !sOK || !tOK {
		return compareOthers(a, b, function, holds)
	}
	order, ordered, ok := orderOf(s, t)
	if !ok {
		return types.NewErr("%s %s %s has no meaning", s.Class, symbol(function), t.Class)
	}
	return types.Bool(ordered && holds(order))
}

// compareOthers compares values without a BSON type, such as durations.
func compareOthers(a, b ref.Val, function string, holds func(order int) bool) ref.Val {
	if isAbsent(a) || isAbsent(b) {
		return types.False
	}
	if c, ok := a.(traits.Comparer); ok && a.Type() == b.Type() {
		if order, ok := c.Compare(b).(types.Int); ok {
			return types.Bool(holds(int(order)))
		}
	}
	return types.NewErr("%s %s %s has no meaning", className(a), symbol(function), className(b))
}

// symbol returns the operator symbol: CEL's name is _<_.
func symbol(function string) string { return function[1 : len(function)-1] }

func className(v ref.Val) string {
	if s, ok := fromCEL(v); ok {
		return s.Class.String()
	}
	return v.Type().TypeName()
}
