package expr

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// A costMeter bounds what one evaluation walks and copies. CEL counts only the steps of an
// expression, but one step may walk a 16 MiB document. The zero costMeter is exhausted; a nil
// costMeter counts nothing.
type costMeter struct{ left int }

// bytesPerUnit is the number of bytes that cost as much as walking one element.
const bytesPerUnit = 64

// Reset sets the budget in units: an element walked, 64 bytes copied, or 8 steps of a regular
// expression.
func (m *costMeter) Reset(units int) { m.left = units }

// Charge consumes units. If the budget is exhausted, it panics with a value from which the
// interpreter recovers with an error.
func (m *costMeter) Charge(units int) {
	if m == nil {
		return
	}
	if m.left -= units; m.left < 0 {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "the filter reads more of this event, or makes more of it, than one evaluation may"})
	}
}

// ChargeBytes consumes the cost of reading or copying n bytes.
func (m *costMeter) ChargeBytes(n int) { m.Charge(1 + n/bytesPerUnit) }

// chargeValue consumes the cost of creating a value, which may be large.
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
