package leaktest

import (
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// A goroutine that ends later than goleak alone would wait for is no leak.
func TestLateGoroutineIsWaitedFor(t *testing.T) {
	go func() { <-time.NewTimer(time.Second).C }()
	if err := left(patience); err != nil {
		t.Error(err)
	}
}

func TestGoroutineThatStaysIsNamed(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	go stays(end)
	if err := left(0); err == nil || !strings.Contains(err.Error(), "leaktest.stays") {
		t.Errorf("left: %v", err)
	}
	if err := left(0, "github.com/mongostream/streamer/internal/leaktest.stays"); err != nil {
		t.Errorf("what is ignored is left: %v", err)
	}
}

func stays(end <-chan struct{}) { <-end }
