package expr

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// A costMeter bounds what one evaluation walks and copies. CEL's own cost counts the steps of an expression; a step here may walk a document
// of 16 MiB, so that is counted apart. The zero costMeter is used up; a nil costMeter counts nothing.
type costMeter struct{ left int }

// bytesPerUnit is how many bytes cost as much as one element walked.
const bytesPerUnit = 64

// Reset allows units: elements walked, or 64 bytes copied, or 8 steps of a regular expression.
func (m *costMeter) Reset(units int) { m.left = units }

// Charge takes units off. With none left it panics with what the interpreter recovers from: the evaluation ends with an error.
func (m *costMeter) Charge(units int) {
	if m == nil {
		return
	}
	if m.left -= units; m.left < 0 {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "the filter reads more of this event, or makes more of it, than one evaluation may"})
	}
}

// ChargeBytes takes off what reading or copying n bytes costs.
func (m *costMeter) ChargeBytes(n int) { m.Charge(1 + n/bytesPerUnit) }

// chargeValue takes off what making a value costs, where that may be large.
func (m *costMeter) chargeValue(v ref.Val) {
	switch v := v.(type) {
	case types.String:
		m.ChargeBytes(len(v))
	case types.Bytes:
		m.ChargeBytes(len(v))
	case traits.Lister:
		if size, ok := v.Size().(types.Int); ok {
			m.Charge(int(size))
		}
	}
}
