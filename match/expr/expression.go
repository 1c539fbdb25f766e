package expr

import (
	"errors"
	"fmt"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"

	"github.com/mongostream/streamer/fault"
)

// Limits of one evaluation.
const (
	maxSteps = 100_000   // of the expression, as CEL counts them
	maxWalk  = 1_000_000 // of the event, as costMeter counts
)

// An Expression is ready to be evaluated. It is safe for concurrent use.
type Expression struct {
	// Conjuncts are what the source joins with &&. Where it is simple they are all of it, and CEL is not needed to evaluate it.
	Conjuncts []Conjunct
	Simple    bool
	// program returns what CEL evaluates. A simple expression has none until it is asked for: memory is spent on 100,000 of them.
	program func() (cel.Program, error)
}

// Always returns the expression that is true of every event.
func Always() *Expression { return &Expression{Simple: true} }

// Compile makes an expression ready. Its errors are faults, STRM-FILTER-INVALID.
func (c *Checked) Compile() (*Expression, error) {
	x := new(Expression)
	if x.Conjuncts, x.Simple = c.conjunctsOf(); x.Simple {
		x.program = planLater(c.source)
		return x, nil
	}
	// Planned now, because planning finds errors too.
	program, err := c.plan()
	if err != nil {
		return nil, err
	}
	x.program = func() (cel.Program, error) { return program, nil }
	return x, nil
}

// planLater plans when first asked, and until then keeps the source only.
func planLater(source string) func() (cel.Program, error) {
	return sync.OnceValues(func() (cel.Program, error) {
		c, err := Check(source)
		if err != nil {
			return nil, err
		}
		return c.plan()
	})
}

// plan makes the program. Planning evaluates what is constant, outside of what recovers an evaluation; a filter must end no node.
func (c *Checked) plan() (program cel.Program, err error) {
	e, err := env()
	if err != nil {
		return nil, fmt.Errorf("set up filters: %w", err)
	}
	defer func() {
		if broken := recover(); broken != nil {
			program, err = nil, c.invalidAt(c.tree.Expr(), fmt.Sprintf("the expression cannot be planned: %v", broken))
		}
	}()
	if program, err = e.Program(c.ast, operatorOptions(), cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxSteps)); err != nil {
		return nil, c.invalidAt(c.tree.Expr(), err.Error())
	}
	return program, nil
}

// Eval evaluates the expression in the cheapest way. Its errors are faults: STRM-FILTER-EVALUATION, STRM-FILTER-COST.
func (x *Expression) Eval(f *Facts) (Verdict, error) {
	if !x.Simple {
		return x.EvalInCEL(f)
	}
	verdict, err := x.evalSimple(f)
	if err != nil {
		err = fault.New(fault.FilterEvaluation, err)
	}
	return verdict, err
}

// evalSimple joins the conjuncts as CEL does: no wins over unknown, that over an error, that over yes.
func (x *Expression) evalSimple(f *Facts) (Verdict, error) {
	result, failed := Yes, error(nil)
	for i := range x.Conjuncts {
		v, err := x.Conjuncts[i].eval(f)
		switch {
		case err != nil:
			if failed == nil {
				failed = err
			}
		case v == No:
			return No, nil
		case v == Unknown:
			result = Unknown
		}
	}
	if failed != nil && result == Yes {
		return No, failed
	}
	return result, nil
}

func (c Conjunct) eval(f *Facts) (Verdict, error) {
	result, failed := No, error(nil)
	for i := range c {
		v, err := c[i].eval(f)
		switch {
		case err != nil:
			if failed == nil {
				failed = err
			}
		case v == Yes:
			return Yes, nil
		case v == Unknown:
			result = Unknown
		}
	}
	if failed != nil && result == No {
		return No, failed
	}
	return result, nil
}

var errNotBool = errors.New("the filter is neither true nor false")

// EvalInCEL evaluates the expression in CEL, whatever it is; its verdict is that of Eval.
func (x *Expression) EvalInCEL(f *Facts) (Verdict, error) {
	if x.program == nil {
		return Yes, nil
	}
	program, err := x.program()
	if err != nil {
		return No, err
	}
	f.meter.Reset(maxWalk)
	val, _, err := program.Eval(f)
	if err != nil {
		if cancelled, ok := errors.AsType[interpreter.EvalCancelledError](err); ok && cancelled.Cause == interpreter.CostLimitExceeded {
			return No, fault.New(fault.FilterCost, err)
		}
		return No, fault.New(fault.FilterEvaluation, err)
	}
	switch result := val.(type) {
	case types.Bool:
		if result {
			return Yes, nil
		}
		return No, nil
	case *types.Unknown:
		return Unknown, nil
	}
	return No, fault.New(fault.FilterEvaluation, errNotBool)
}
