package expr

import (
	"fmt"

	"cel.dev/cel-go/common/ast"
)

// Never reports whether the expression is false for an operation, whatever the change.
func (c *Checked) Never(op fmt.Stringer) bool {
	return c.foresee(c.tree.Expr(), Doc, op.String()).Verdict == No
}

// Nested returns the path below update.updatedFields that the expression reads step by step, empty
// if it reads none. The names there are paths, so total.net is one name.
func (c *Checked) Nested() (path string) {
	ast.PreOrderVisit(c.tree.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		outer, inner, ok := c.steps(x)
		if fields, of, is := c.steps(inner); ok && is && path == "" {
			if _, root, isField := c.steps(of); isField && fields != "" {
				if v, known := c.variable(root); known && v == Update && c.stepName(of) == "updatedFields" {
					path = fields + "." + outer
				}
			}
		}
	}))
	return path
}

// steps returns the name of a field that an expression selects, and its operand.
func (c *Checked) steps(x ast.Expr) (name string, of ast.Expr, ok bool) {
	if x == nil {
		return "", nil, false
	}
	switch x.Kind() {
	case ast.SelectKind:
		return x.AsSelect().FieldName(), x.AsSelect().Operand(), true
	case ast.CallKind:
		call := x.AsCall()
		if text, isText := lastText(call); call.FunctionName() == "_[_]" && isText {
			return text, call.Args()[0], true
		}
	default: // selects nothing
	}
	return "", nil, false
}

func (c *Checked) stepName(x ast.Expr) string {
	name, _, _ := c.steps(x)
	return name
}
