package expr

import (
	"fmt"
)

// A Verdict is the result of an expression for an event.
type Verdict uint8

// The verdicts.
const (
	No Verdict = iota
	Yes
	// Unknown means that the result depends on values that the event does not carry.
	Unknown
)

// A Relation is the comparison of a predicate.
type Relation uint8

// The relations.
const (
	Equals  Relation = iota // field == one of the constants
	Less                    // field < constant
	AtMost                  // field <= constant
	Greater                 // field > constant
	AtLeast                 // field >= constant
)

var relationSymbols = [...]string{"==", "<", "<=", ">", ">="} //nolint:gochecknoglobals // a constant table

// A Predicate compares a field with constants: the part of filters that the index uses. Its result
// is that of CEL.
type Predicate struct {
	Root      Root
	Path      []string
	Relation  Relation
	Constants []Constant // one, except with Equals
}

// eval evaluates the predicate.
func (p *Predicate) eval(f *Facts) (Verdict, error) {
	field, known, err := p.field(f)
	if err != nil {
		return No, err
	}
	if !known {
		return Unknown, nil
	}
	if p.Relation == Equals {
		for i := range p.Constants {
			if field.Equal(p.Constants[i].Scalar) {
				return Yes, nil
			}
		}
		return No, nil
	}
	order, ordered, ok := orderOf(field, p.Constants[0].Scalar)
	if !ok {
		return No, fmt.Errorf("%s %s %s has no meaning", field.Class, relationSymbols[p.Relation], p.Constants[0].Class)
	}
	if ordered && p.Relation.holds(order) {
		return Yes, nil
	}
	return No, nil
}

// field returns the scalar of the field.
func (p *Predicate) field(f *Facts) (s Scalar, known bool, err error) {
	if p.Root.IsName() {
		text, known := f.name(p.Root)
		if len(p.Path) > 0 && known {
			return s, true, noFields(Text, p.Path[0])
		}
		return textScalar(text), known, nil
	}
	v, known, err := f.Value(p.Root)
	if err != nil || !known {
		return s, known, err
	}
	for _, name := range p.Path {
		switch class := ClassOf(v); class {
		case Absent:
			return s, true, nil
		case Document:
		default:
			return s, true, noFields(class, name)
		}
		var walked int
		v, walked, err = findField(v.Data, name)
		if f.spent += walked; err != nil {
			return s, true, err
		}
	}
	return ScalarOf(v), true, nil
}

func noFields(class Class, name string) error {
	return fmt.Errorf("no field %q in %s", name, class)
}

func (r Relation) holds(order int) bool {
	switch r {
	case Less:
		return order < 0
	case AtMost:
		return order <= 0
	case Greater:
		return order > 0
	case AtLeast:
		return order >= 0
	case Equals:
	}
	return order == 0
}

// turned returns the relation with exchanged operands.
func (r Relation) turned() Relation {
	switch r {
	case Less:
		return Greater
	case AtMost:
		return AtLeast
	case Greater:
		return Less
	case AtLeast:
		return AtMost
	case Equals:
	}
	return r
}
