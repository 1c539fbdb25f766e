package expr

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// A Conjunct is a condition joined with &&: at least one of its predicates must hold. It is empty
// if predicates cannot express the condition.
type Conjunct []Predicate

// conjunctsOf returns the conjuncts; simple says that predicates express all of them.
func (c *Checked) conjunctsOf() (all []Conjunct, simple bool) {
	simple = true
	for _, x := range flatten(c.tree.Expr(), operators.LogicalAnd, nil) {
		one := c.conjunct(x)
		simple = simple && one != nil
		all = append(all, one)
	}
	return all, simple
}

// flatten lists the operands of nested uses of an operator.
func flatten(x ast.Expr, operator string, to []ast.Expr) []ast.Expr {
	if x.Kind() != ast.CallKind || x.AsCall().FunctionName() != operator {
		return append(to, x)
	}
	for _, arg := range x.AsCall().Args() {
		to = flatten(arg, operator, to)
	}
	return to
}

func (c *Checked) conjunct(x ast.Expr) Conjunct {
	var one Conjunct
	for _, y := range flatten(x, operators.LogicalOr, nil) {
		if y.Kind() != ast.CallKind {
			return nil
		}
		p := c.predicate(y.AsCall().FunctionName(), y.AsCall().Args())
		if p == nil {
			return nil
		}
		one = append(one, *p)
	}
	return one
}

// predicate returns the predicate for a comparison of a field with a constant, nil for anything
// else.
func (c *Checked) predicate(function string, args []ast.Expr) *Predicate {
	if len(args) != 2 {
		return nil
	}
	relations := map[string]Relation{
		operators.Equals: Equals, operators.In: Equals,
		operators.Less: Less, operators.LessEquals: AtMost, operators.Greater: Greater, operators.GreaterEquals: AtLeast,
	}
	rel, ok := relations[function]
	if !ok {
		return nil
	}
	if function == operators.In {
		return c.membership(args[0], args[1])
	}
	field, value := args[0], args[1]
	constant, ok := constantOf(value)
	if !ok {
		field = value
		rel = rel.turned()
		if constant, ok = constantOf(args[0]); !ok {
			return nil
		}
	}
	r, path, ok := c.path(field)
	if !ok || rel != Equals && !constant.Class.isOrdered() {
		return nil
	}
	return &Predicate{Root: r, Path: path, Relation: rel, Constants: []Constant{constant}}
}

// membership returns the predicate for a field in a list of constants.
func (c *Checked) membership(field, list ast.Expr) *Predicate {
	r, path, ok := c.path(field)
	if !ok || list.Kind() != ast.ListKind || list.AsList().Size() == 0 {
		return nil
	}
	p := &Predicate{Root: r, Path: path}
	for _, x := range list.AsList().Elements() {
		constant, ok := constantOf(x)
		if !ok {
			return nil
		}
		p.Constants = append(p.Constants, constant)
	}
	return p
}

// path returns the variable and the field names that an expression selects.
func (c *Checked) path(x ast.Expr) (r Root, path []string, ok bool) {
	if r, ok := c.variable(x); ok {
		return r, nil, true
	}
	var operand ast.Expr
	var name string
	switch x.Kind() {
	case ast.SelectKind:
		operand, name = x.AsSelect().Operand(), x.AsSelect().FieldName()
	case ast.CallKind:
		call := x.AsCall()
		text, isText := lastText(call)
		if call.FunctionName() != operators.Index || !isText {
			return 0, nil, false
		}
		operand = call.Args()[0]
		name = text
	default:
		return 0, nil, false
	}
	r, path, ok = c.path(operand)
	return r, append(path, name), ok
}

// constantOf returns the value of a literal, or of a conversion of one.
func constantOf(x ast.Expr) (c Constant, ok bool) {
	var val ref.Val
	switch x.Kind() {
	case ast.LiteralKind:
		val = x.AsLiteral()
	case ast.CallKind:
		text, isText := lastText(x.AsCall())
		if !isText || len(x.AsCall().Args()) != 1 {
			return c, false
		}
		if x.AsCall().FunctionName() == overloads.TypeConvertTimestamp {
			val = types.String(text).ConvertToType(types.TimestampType)
			break
		}
		made, known, err := convertText(x.AsCall().FunctionName(), text)
		if !known || err != nil {
			return c, false
		}
		val = made
	default:
		return c, false
	}
	scalar, ok := fromCEL(val)
	if !ok {
		return c, false
	}
	return newConstant(scalar)
}
