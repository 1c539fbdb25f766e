package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"

	"github.com/mongostream/streamer/fault"
)

// MaxSource bounds an expression, in bytes.
const MaxSource = 4096

// Limits of expressions; see docs/filters.md.
const (
	maxNesting        = 50   // of parentheses, calls and lists
	maxNodes          = 2000 // of the checked expression, macros expanded
	maxComprehensions = 3    // nested in each other
	maxRegex          = 1000 // instructions of a compiled pattern
)

// env is the CEL environment of filters, built once.
//
//nolint:gochecknoglobals // a constant that takes a while to build
var env = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{cel.StdLib()}
	options = append(options, celOptions()...)
	document := cel.MapType(cel.StringType, cel.DynType)
	options = append(options,
		cel.Variable("doc", document), cel.Variable("doc._id", cel.DynType), cel.Variable("before", document),
		cel.Variable("key", document), cel.Variable("update", document),
		cel.Variable("op", cel.StringType), cel.Variable("ns.db", cel.StringType), cel.Variable("ns.coll", cel.StringType),
		cel.ParserRecursionLimit(maxNesting), cel.ParserExpressionSizeLimit(MaxSource), cel.ExpressionNestingDepthLimit(maxNesting),
		cel.ExpressionNodeLimit(maxNodes), cel.DefaultUTCTimeZone(true),
		cel.ASTValidators(cel.ValidateTimestampLiterals(), cel.ValidateDurationLiterals(),
			cel.ValidateComprehensionNestingLimit(maxComprehensions)))
	return cel.NewCustomEnv(options...)
})

// reserved are the names that a macro variable must not shadow.
func reserved() []string { return []string{"doc", "before", "key", "update", "op", "ns"} }

// A Checked is a parsed and type-checked expression.
type Checked struct {
	source string
	ast    *cel.Ast
	tree   *ast.AST
	bytes  int // what its program takes, as estimated
}

// A SourceError is an error at a position in an expression.
type SourceError struct {
	Line, Column int // from 1
	Reason       string
}

// Error returns position and reason.
func (e *SourceError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// Check parses and type-checks an expression, and rejects one that would always fail at evaluation.
// It rejects too large expressions after parsing, before any step that costs more. Its errors are
// faults: STRM-FILTER-INVALID, which wraps a SourceError, and STRM-FILTER-TOO-LARGE.
func Check(source string) (*Checked, error) {
	e, err := env()
	if err != nil {
		return nil, fmt.Errorf("set up filters: %w", err)
	}
	parsed, issues := e.Parse(source)
	if len(issues.Errors()) > 0 { // Err would write them all out
		return nil, invalid(issues)
	}
	c := &Checked{source: source, tree: parsed.NativeRep()}
	if err := c.measure(); err != nil {
		return nil, err
	}
	compiled, issues := e.Check(parsed)
	if len(issues.Errors()) > 0 {
		return nil, invalid(issues)
	}
	c.ast = compiled
	c.tree = compiled.NativeRep()
	if compiled.OutputType() != cel.BoolType {
		return nil, c.invalidAt(c.tree.Expr(), fmt.Sprintf("the filter has the type %s; it must be true or false: write a comparison", compiled.OutputType()))
	}
	var wrong error
	ast.PreOrderVisit(c.tree.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		if wrong == nil {
			wrong = c.inspect(x)
		}
	}))
	if wrong != nil {
		return nil, wrong
	}
	return c, nil
}

// invalid converts the first error of the parser or the checker to a fault.
func invalid(issues *cel.Issues) error {
	first := issues.Errors()[0]
	return fault.New(fault.FilterInvalid, &SourceError{Line: max(first.Location.Line(), 1), Column: max(first.Location.Column(), 0) + 1, Reason: inWords(first.Message)})
}

// inWords says in plain words what the parser says in the terms of its grammar: which symbols it
// expected instead.
func inWords(message string) string {
	text := strings.TrimPrefix(message, "Syntax error: ")
	seen, _, expected := strings.Cut(text, " expecting ")
	for _, before := range []string{"mismatched input ", "extraneous input ", "no viable alternative at input "} {
		symbol, found := strings.CutPrefix(seen, before)
		switch {
		case !found:
		case strings.HasSuffix(symbol, "<EOF>'"):
			return "the expression ends too early"
		case expected || before != "extraneous input ":
			return "unexpected " + symbol
		}
	}
	if symbol, found := strings.CutPrefix(text, "token recognition error at: "); found {
		return "unexpected " + symbol
	}
	return text
}

func (c *Checked) invalidAt(x ast.Expr, reason string) error {
	place := c.tree.SourceInfo().GetStartLocation(x.ID())
	return fault.New(fault.FilterInvalid, &SourceError{Line: max(place.Line(), 1), Column: max(place.Column(), 0) + 1, Reason: reason})
}

// inspect checks one node.
func (c *Checked) inspect(x ast.Expr) error {
	switch x.Kind() {
	case ast.ComprehensionKind:
		if name := x.AsComprehension().IterVar(); slices.Contains(reserved(), name) {
			return c.invalidAt(x, fmt.Sprintf("the name %q is reserved: choose another name for the variable", name))
		}
	case ast.MapKind:
		return c.inspectMap(x)
	case ast.CallKind:
		return c.inspectCall(x)
	default: // nothing that the checker has not seen
	}
	return nil
}

// inspectMap rejects map keys for which CEL panics; the type checker accepts them.
func (c *Checked) inspectMap(x ast.Expr) error {
	for _, entry := range x.AsMap().Entries() {
		key := entry.AsMapEntry().Key()
		switch t := c.tree.GetType(key.ID()); t.Kind() {
		case types.StringKind, types.IntKind, types.UintKind, types.BoolKind:
		default:
			return c.invalidAt(key, fmt.Sprintf("a map key must be a string, an int or a bool, not a %s", t))
		}
	}
	return nil
}

var errComputedPattern = errors.New("the pattern of matches() must be a literal")

func (c *Checked) inspectCall(x ast.Expr) error {
	call := x.AsCall()
	arg, isText := lastText(call)
	if call.FunctionName() == overloads.Matches {
		if !isText {
			return c.invalidAt(x, errComputedPattern.Error())
		}
		return nil // measured before
	}
	if !isText {
		return nil
	}
	if _, _, err := convertText(call.FunctionName(), arg); err != nil {
		return c.invalidAt(x, err.Error())
	}
	return nil
}

// lastText returns the last argument of a call if it is a string literal.
func lastText(call ast.CallExpr) (string, bool) {
	args := call.Args()
	if len(args) == 0 || args[len(args)-1].Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := args[len(args)-1].AsLiteral().(types.String)
	return string(text), ok
}

// variable returns the root that an identifier, or a name like doc._id, refers to.
func (c *Checked) variable(x ast.Expr) (Root, bool) {
	ref, ok := c.tree.ReferenceMap()[x.ID()]
	if !ok || x.Kind() != ast.IdentKind && x.Kind() != ast.SelectKind {
		return 0, false
	}
	return rootOf(ref.Name)
}

// An outcome is the result of an expression if only the operation is known.
type outcome struct {
	Verdict Verdict
	reads   bool // the result depends on the root in question
}

// Reads reports whether the verdict for an operation may depend on a variable.
func (c *Checked) Reads(r Root, op fmt.Stringer) bool {
	return c.foresee(c.tree.Expr(), r, op.String()).reads
}

func (c *Checked) foresee(x ast.Expr, r Root, op string) outcome {
	switch {
	case x.Kind() == ast.LiteralKind:
		if b, ok := x.AsLiteral().(types.Bool); ok {
			return decided(bool(b))
		}
	case x.Kind() == ast.CallKind:
		return c.foreseeCall(x, r, op)
	}
	return outcome{Unknown, c.mentions(x, r)}
}

func decided(b bool) outcome {
	if b {
		return outcome{Verdict: Yes}
	}
	return outcome{Verdict: No}
}

func (c *Checked) foreseeCall(x ast.Expr, r Root, op string) outcome {
	call := x.AsCall()
	var args []outcome
	foresee := func() {
		for _, arg := range call.Args() {
			args = append(args, c.foresee(arg, r, op))
		}
	}
	switch call.FunctionName() {
	case operators.LogicalAnd:
		foresee()
		return joined(args, No, Yes)
	case operators.LogicalOr:
		foresee()
		return joined(args, Yes, No)
	case operators.LogicalNot:
		foresee()
		if args[0].Verdict != Unknown {
			return decided(args[0].Verdict == No)
		}
		return args[0]
	case operators.Conditional:
		foresee()
		switch args[0].Verdict {
		case Yes:
			return args[1]
		case No:
			return args[2]
		default:
			return outcome{Unknown, args[0].reads || args[1].reads || args[2].reads}
		}
	case operators.Equals, operators.NotEquals, operators.In:
		if names, ok := c.operations(call); ok {
			return decided(slices.Contains(names, op) == (call.FunctionName() != operators.NotEquals))
		}
	}
	return outcome{Unknown, c.mentions(x, r)}
}

// joined is the outcome of a conjunction (decisive: No) or a disjunction (decisive: Yes).
func joined(args []outcome, decisive, neutral Verdict) outcome {
	result := outcome{Verdict: neutral}
	for _, arg := range args {
		switch arg.Verdict {
		case decisive:
			return outcome{Verdict: decisive}
		case Unknown:
			result = outcome{Unknown, result.reads || arg.reads}
		default: // changes nothing
		}
	}
	return result
}

// operations returns the names in a comparison with op, if call is one.
func (c *Checked) operations(call ast.CallExpr) (names []string, ok bool) {
	function := call.FunctionName()
	if function == operators.NotEquals {
		function = operators.Equals
	}
	p := c.predicate(function, call.Args())
	if p == nil || p.Root != Op || p.Relation != Equals {
		return nil, false
	}
	for _, constant := range p.Constants {
		names = append(names, string(constant.Text()))
	}
	return names, true
}

// mentions reports whether a root occurs in x.
func (c *Checked) mentions(x ast.Expr, r Root) bool {
	found := false
	ast.PreOrderVisit(x, ast.NewExprVisitor(func(x ast.Expr) {
		if v, ok := c.variable(x); ok && v == r {
			found = true
		}
	}))
	return found
}
