package expr

import (
	"errors"
	"fmt"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/mongostream/streamer/fault"
)

// Limits of one evaluation.
const (
	maxSteps = 100_000   // of the expression, in CEL's cost units
	maxWalk  = 1_000_000 // of the event, in units of costMeter
)

// stepUnits is the number of units that one of CEL's steps costs; see MaxCost.
const stepUnits = 25

// evaluationUnits is the fixed cost of an evaluation.
const evaluationUnits = 10

// MaxCost is the most that an evaluation can cost. A unit is an element walked, 64 bytes copied, 8
// steps of a regular expression, or a 25th of one of CEL's steps: about 10 ns, as BenchmarkCost of
// package match measures it.
const MaxCost = maxWalk + maxSteps*stepUnits

// An Expression is a compiled expression. It is safe for concurrent use.
type Expression struct {
	// Conjuncts are the conditions joined with &&. If Simple is set, they are the whole expression,
	// and CEL is not needed.
	Conjuncts []Conjunct
	Simple    bool
	// Bytes is an estimate of its memory.
	Bytes int
	// program returns the CEL program. That of a simple expression is built on demand, to save
	// memory with many subscriptions.
	program func() (cel.Program, error)
}

// Always returns the expression that is true for every event.
func Always() *Expression { return &Expression{Simple: true} }

// Compile compiles the expression. Its errors are faults, STRM-FILTER-INVALID.
func (c *Checked) Compile() (*Expression, error) {
	x := &Expression{Bytes: c.bytes}
	if x.Conjuncts, x.Simple = c.conjunctsOf(); x.Simple {
		x.Bytes = bytesOfSimple + (c.bytes-bytesOfProgram)/2
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

// planLater keeps only the source until the program is first needed.
func planLater(source string) func() (cel.Program, error) {
	return sync.OnceValues(func() (cel.Program, error) {
		c, err := Check(source)
		if err != nil {
			return nil, err
		}
		return c.plan()
	})
}

// plan builds the program. Planning evaluates constants without the interpreter's recovery from
// panics, so it recovers itself.
func (c *Checked) plan() (program cel.Program, err error) {
	e, err := env()
	if err != nil {
		return nil, fmt.Errorf("set up filters: %w", err)
	}
	defer func() {
		if broken := recover(); broken != nil {
			program = nil
			err = c.invalidAt(c.tree.Expr(), fmt.Sprintf("the expression cannot be planned: %v", broken))
		}
	}()
	// Steps are counted by a tracker that each evaluation brings: one in each program would take
	// more memory than most programs.
	if program, err = e.Program(c.ast, operatorOptions(), cel.EvalOptions(cel.OptOptimize)); err != nil {
		return nil, c.invalidAt(c.tree.Expr(), err.Error())
	}
	return program, nil
}

// Eval evaluates the expression in the cheapest way. Its errors are faults: STRM-FILTER-EVALUATION,
// STRM-FILTER-COST.
func (x *Expression) Eval(f *Facts) (Verdict, error) {
	if !x.Simple {
		return x.EvalInCEL(f)
	}
	f.spent += evaluationUnits
	verdict, err := x.evalSimple(f)
	switch {
	case errors.Is(err, errCost):
		return No, fault.New(fault.FilterCost, err)
	case err != nil:
		err = fault.New(fault.FilterEvaluation, err)
	}
	return verdict, err
}

// errCost says that a simple expression walks too much.
var errCost = errors.New("the filter walks more of this event than one evaluation may")

// evalSimple combines the conjuncts as CEL does: No wins over Unknown, Unknown over an error, an
// error over Yes.
func (x *Expression) evalSimple(f *Facts) (Verdict, error) {
	result := Yes
	var failed error
	for i := range x.Conjuncts {
		v, err := x.Conjuncts[i].eval(f)
		switch {
		case errors.Is(err, errCost):
			return No, err
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
	result := No
	var failed error
	for i := range c {
		v, err := c[i].eval(f)
		switch {
		case f.spent > f.grant:
			return No, errCost
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

// EvalInCEL evaluates the expression in CEL; the verdict is that of Eval.
func (x *Expression) EvalInCEL(f *Facts) (Verdict, error) {
	if x.program == nil {
		return Yes, nil
	}
	program, err := x.program()
	if err != nil {
		return No, err
	}
	val, err := f.run(program)
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

// run evaluates a program within the granted cost, and charges the actual cost.
func (f *Facts) run(program cel.Program) (ref.Val, error) {
	left := max(f.grant-f.spent, 0)
	walk := min(maxWalk, left)
	f.steps = uint64(min(maxSteps, left/stepUnits))
	f.meter.Reset(walk)
	tracker, err := tracker.Clone()
	if err != nil {
		return nil, fmt.Errorf("set up filters: %w", err)
	}
	tracker.Limit = &f.steps
	frame, err := interpreter.NewExecutionFrame(f)
	if err != nil {
		return nil, fmt.Errorf("set up filters: %w", err)
	}
	defer frame.Close()
	frame.SetCostTracker(tracker)
	val, _, err := program.Eval(frame)
	f.spent += evaluationUnits + walk - max(f.meter.left, 0) + int(min(tracker.ActualCost(), maxSteps))*stepUnits
	return val, err
}

// tracker counts the steps of an evaluation. Each evaluation takes a copy.
//
//nolint:gochecknoglobals // a constant
var tracker = func() *cost.Tracker {
	t, err := cost.NewTracker(nil)
	if err != nil {
		panic(err)
	}
	return t
}()
