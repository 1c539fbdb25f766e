package node

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", parallel) // -parallel still decides
	// A proxy whose connection was cut and healed under load may leave one of its own goroutines
	// behind (toxiproxy 2.5, ToxicLink.AddToxic).
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"))
}
