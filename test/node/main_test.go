package node

import (
	"flag"
	"testing"

	"github.com/mongostream/streamer/internal/leaktest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", parallel) // -parallel still decides
	// A proxy whose connection was cut and healed under load may leave one of its own goroutines
	// behind (toxiproxy 2.5, ToxicLink.AddToxic).
	leaktest.Main(m,
		"github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run",
		"github.com/Shopify/toxiproxy/v2.(*ToxicLink).read")
}
