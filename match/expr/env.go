package expr

import (
	"regexp/syntax"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Functions that make values which CEL has no literals for, as they are called in filters.
const (
	funcObjectID = "ObjectId"
	funcUUID     = "uuid"
	funcDecimal  = "decimal"
)

// funcHas is the function for the macro has().
const funcHas = "@has"

// celOptions declare the extensions of CEL's standard library: ObjectId, uuid and decimal,
// changed(), and has() on missing fields.
func celOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.ClearMacros(),
		cel.Macros(cel.GlobalMacro(operators.Has, 1, expandHas), cel.GlobalMacro("changed", 1, expandChanged), cel.AllMacro, cel.ExistsMacro, cel.ExistsOneMacro, cel.MapMacro, cel.MapFilterMacro, cel.FilterMacro),
		cel.Function(funcHas, cel.Overload("bson_has", []*cel.Type{cel.DynType, cel.StringType}, cel.BoolType, cel.BinaryBinding(has))),
		changedOption(), maker(funcObjectID), maker(funcUUID), maker(funcDecimal),
		conversion("string", cel.StringType, objectIDType, decimalType, binaryType),
		conversion("double", cel.DoubleType, decimalType),
		conversion("int", cel.IntType, decimalType),
		conversion("bytes", cel.BytesType, binaryType),
	}
}

// convertText calls a conversion function by name; known is false for other functions.
func convertText(function, text string) (val ref.Val, known bool, err error) {
	var s Scalar
	switch function {
	case funcObjectID:
		s, err = parseObjectID(text)
	case funcUUID:
		s, err = parseUUID(text)
	case funcDecimal:
		s, err = parseNumber(text)
	default:
		return nil, false, nil
	}
	return scalar(s), true, err
}

// maker declares a function from a string to a value; its result is dyn, so that it can be compared
// with any field.
func maker(name string) cel.EnvOption {
	return cel.Function(name, cel.Overload(strings.ToLower(name)+"_string", []*cel.Type{cel.StringType}, cel.DynType, cel.UnaryBinding(func(arg ref.Val) ref.Val {
		text, ok := arg.(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(arg)
		}
		val, _, err := convertText(name, string(text))
		if err != nil {
			return types.WrapErr(err)
		}
		return val
	})))
}

// conversion adds overloads of a CEL conversion for types unknown to CEL.
func conversion(name string, to *cel.Type, from ...*cel.Type) cel.EnvOption {
	var overloads []cel.FunctionOpt
	for _, t := range from {
		overloads = append(overloads, cel.Overload(strings.ToLower(t.TypeName())+"_to_"+name, []*cel.Type{t}, to,
			cel.UnaryBinding(func(arg ref.Val) ref.Val { return arg.ConvertToType(to) })))
	}
	return cel.Function(name, overloads...)
}

// expandHas converts has(x.y) to a call, because selecting a missing field is not an error here.
func expandHas(eh cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
	if args[0].Kind() != ast.SelectKind {
		return nil, eh.NewError(args[0].ID(), "has() takes a field, like has(doc.a)")
	}
	field := args[0].AsSelect()
	return eh.NewCall(funcHas, field.Operand(), eh.NewLiteral(types.String(field.FieldName()))), nil
}

func has(obj, field ref.Val) ref.Val {
	name, ok := field.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(field)
	}
	if d, ok := obj.(*docView); ok {
		return d.Has(string(name))
	}
	if s, ok := fromCEL(obj); !ok || s.Class != Document && s.Class != Absent {
		return types.NewErr("no field %q in %s", string(name), className(obj))
	}
	return contains(field, obj)
}

// regexSize returns the number of instructions of a compiled regular expression.
func regexSize(pattern string) (int, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, err
	}
	return len(prog.Inst), nil
}
