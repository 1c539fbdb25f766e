package expr

import (
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/mongostream/streamer/change"
)

// funcChanged is the function for the macro changed().
const funcChanged = "@changed"

// changedOption declares changed("a.b"): whether a change may have changed a field, or something
// in it.
func changedOption() cel.EnvOption {
	return cel.Function(funcChanged, cel.Overload("bson_changed", []*cel.Type{cel.DynType, cel.StringType}, cel.BoolType, cel.BinaryBinding(changed)))
}

// expandChanged converts changed("a.b") to a call with the update.
func expandChanged(eh cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
	path := types.String("")
	is := false
	if args[0].Kind() == ast.LiteralKind {
		path, is = args[0].AsLiteral().(types.String)
	}
	if !is || path == "" {
		return nil, eh.NewError(args[0].ID(), `changed() takes the path of a field in quotes, like changed("total.net")`)
	}
	return eh.NewCall(funcChanged, eh.NewIdent("update"), args[0]), nil
}

// changed reports whether an update changes a field: sets, removes or shortens the field, a part of
// it, or a field that contains it. Every other operation adds or removes the whole document.
func changed(update, path ref.Val) ref.Val {
	field, ok := path.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(path)
	}
	d, ok := update.(*docView)
	if !ok {
		return types.True
	}
	asked := string(field)
	found := false
	part := func(name string, pathOf func(name []byte, v change.Value) []byte) {
		in, walked, err := findField(d.raw, name)
		d.meter.Charge(walked)
		hasFields := in.Type == change.TypeDocument || in.Type == change.TypeArray
		if err != nil || found || !hasFields {
			return
		}
		fold(in.Data, d.meter, func(_ int, name []byte, v change.Value) bool {
			of := pathOf(name, v)
			d.meter.ChargeBytes(len(of))
			found = touches(string(of), asked)
			return !found
		})
	}
	part("updatedFields", func(name []byte, _ change.Value) []byte { return name })
	part("removedFields", func(_ []byte, v change.Value) []byte { return v.Text() })
	part("truncatedArrays", func(_ []byte, v change.Value) []byte { return v.Lookup("field").Text() })
	return types.Bool(found)
}

// touches reports whether a change at a path concerns another: one is the other, or in it. A number
// in the path of the change may be the place in an array, which need not be asked for.
func touches(at, asked string) bool {
	for at != "" && asked != "" {
		step, rest, _ := strings.Cut(at, ".")
		want, more, _ := strings.Cut(asked, ".")
		switch {
		case step == want:
			at = rest
			asked = more
		case step != "" && strings.Trim(step, "0123456789") == "":
			at = rest
		default:
			return false
		}
	}
	return true
}
