package wiring

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most of what the tests do is to wait; -parallel still decides
	goleak.VerifyTestMain(m)
}
