package expr

import (
	"errors"
	"regexp"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// meterName is the variable that holds the costMeter. Filters cannot name it.
const meterName = "@meter"

// regexSteps is the number of regular expression steps that cost as much as walking one element.
const regexSteps = 8

// errPattern says that a pattern is computed. Check rejects such filters.
var errPattern = errors.New("the pattern of matches() must be a literal")

// operatorOptions replace CEL's operators, which know neither Decimal128 nor missing fields and
// compare large integers with doubles inexactly.
func operatorOptions() cel.ProgramOption { return cel.CustomDecoratorV2(decorate) }

func decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	args := call.Args()
	if call.Function() == overloads.Size && len(args) == 1 {
		return &sizeNode{call, args[0]}, nil
	}
	if len(args) != 2 {
		return &chargedNode{call}, nil
	}
	node := binaryNode{id: call.ID(), function: call.Function(), overload: call.OverloadID(), lhs: args[0], rhs: args[1]}
	switch function := call.Function(); function {
	case operators.Equals:
		node.apply = func(m *costMeter, a, b ref.Val) ref.Val { return equal(m, a, b, 0) }
	case operators.NotEquals:
		node.apply = notEqual
	case operators.In, operators.OldIn:
		node.apply = in
	case operators.Less:
		node.apply = ordering(function, func(order int) bool { return order < 0 })
	case operators.LessEquals:
		node.apply = ordering(function, func(order int) bool { return order <= 0 })
	case operators.Greater:
		node.apply = ordering(function, func(order int) bool { return order > 0 })
	case operators.GreaterEquals:
		node.apply = ordering(function, func(order int) bool { return order >= 0 })
	case overloads.Matches:
		return newMatches(node)
	default:
		return &chargedNode{call}, nil
	}
	return &node, nil
}

func notEqual(m *costMeter, a, b ref.Val) ref.Val {
	same := equal(m, a, b, 0)
	if yes, ok := same.(types.Bool); ok {
		return !yes
	}
	return same
}

func ordering(function string, holds func(order int) bool) func(m *costMeter, a, b ref.Val) ref.Val {
	return func(m *costMeter, a, b ref.Val) ref.Val { return compare(m, a, b, function, holds) }
}

// A chargedNode is a CEL step whose result is charged, because repeated doubling would fill the
// memory in few steps.
type chargedNode struct{ interpreter.InterpretableCall }

// Exec implements interpreter.InterpretableV2.
func (n *chargedNode) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	result := n.InterpretableCall.Exec(frame)
	if isLarge(result) {
		meterOf(frame).chargeValue(result)
	}
	return result
}

// Eval implements interpreter.Interpretable.
func (n *chargedNode) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, n.Exec)
}

// A sizeNode is size(), charged because it counts the characters of a string.
type sizeNode struct {
	interpreter.InterpretableCall

	arg interpreter.InterpretableV2
}

// Exec implements interpreter.InterpretableV2.
func (n *sizeNode) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	arg := n.arg.Exec(frame)
	if types.IsUnknownOrError(arg) {
		return arg
	}
	if isLarge(arg) {
		meterOf(frame).chargeValue(arg)
	}
	sized, ok := arg.(traits.Sizer)
	if !ok || isAbsent(arg) {
		return types.NewErr("no such overload: size(%s)", className(arg))
	}
	if costs := frame.CostTracker(); costs != nil {
		costs.Qualify(n.ID())
	}
	return sized.Size()
}

// Eval implements interpreter.Interpretable.
func (n *sizeNode) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, n.Exec)
}

// isLarge reports whether the value is large enough to be charged.
func isLarge(v ref.Val) bool {
	switch v := v.(type) {
	case types.String:
		return len(v) > bytesPerUnit
	case types.Bytes:
		return len(v) > bytesPerUnit
	case traits.Lister, traits.Mapper:
		return true
	}
	return false
}

// A binaryNode is an operator with two operands.
type binaryNode struct {
	id                 int64
	function, overload string
	lhs, rhs           interpreter.InterpretableV2
	apply              func(m *costMeter, a, b ref.Val) ref.Val
}

// ID implements interpreter.Interpretable.
func (n *binaryNode) ID() int64 { return n.id }

// Function and OverloadID identify the step in CEL's cost model.
func (n *binaryNode) Function() string { return n.function }

// OverloadID is part of CEL's cost model.
func (n *binaryNode) OverloadID() string { return n.overload }

// Eval implements interpreter.Interpretable.
func (n *binaryNode) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, n.Exec)
}

// Exec implements interpreter.InterpretableV2. Unknown wins over an error, because the event may
// match.
func (n *binaryNode) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	a := n.lhs.Exec(frame)
	b := n.rhs.Exec(frame)
	result, plain := strict(a, b)
	if plain {
		var meter *costMeter
		if isLarge(a) || isLarge(b) {
			meter = meterOf(frame)
		}
		result = n.apply(meter, a, b)
	}
	if costs := frame.CostTracker(); costs != nil {
		costs.Qualify(n.id)
	}
	return result
}

// strict returns the result of an operator if an operand is unknown or an error; plain says that
// none is.
func strict(a, b ref.Val) (result ref.Val, plain bool) {
	x, xUnknown := a.(*types.Unknown)
	y, yUnknown := b.(*types.Unknown)
	switch {
	case xUnknown && yUnknown:
		return types.MergeUnknowns(x, y), false
	case xUnknown:
		return a, false
	case yUnknown:
		return b, false
	case types.IsError(a):
		return a, false
	case types.IsError(b):
		return b, false
	}
	return nil, true
}

// A matches is a regular expression that is compiled once and charged before it runs.
type matches struct {
	binaryNode

	pattern *regexp.Regexp
	size    int
}

func newMatches(node binaryNode) (interpreter.InterpretableV2, error) {
	literal, ok := node.rhs.(interpreter.InterpretableConst)
	if !ok {
		return nil, errPattern
	}
	text, ok := literal.Value().(types.String)
	if !ok {
		return nil, errPattern
	}
	size, err := regexSize(string(text))
	if err != nil {
		return nil, err
	}
	pattern, err := regexp.Compile(string(text))
	if err != nil {
		return nil, err
	}
	return &matches{binaryNode: node, pattern: pattern, size: size}, nil
}

// Eval implements interpreter.Interpretable.
func (n *matches) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, n.Exec)
}

// Exec implements interpreter.InterpretableV2.
func (n *matches) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	arg := n.lhs.Exec(frame)
	if types.IsUnknownOrError(arg) {
		return arg
	}
	text, ok := arg.(types.String)
	if !ok {
		return types.NewErr("matches() takes a string, not %s", className(arg))
	}
	meterOf(frame).Charge(1 + len(text)*n.size/regexSteps)
	result := types.Bool(n.pattern.MatchString(string(text)))
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, n.id, n, arg, types.String(n.pattern.String()), result)
	}
	return result
}

// meterOf returns the evaluation's meter, or nil.
func meterOf(vars interpreter.Activation) *costMeter {
	found, _ := vars.ResolveName(meterName)
	meter, _ := found.(*costMeter)
	return meter
}
