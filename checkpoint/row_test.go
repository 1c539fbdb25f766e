package checkpoint_test

import (
	"testing"
	"time"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/rowtest"
)

func TestMemoryKeepsRows(t *testing.T) {
	rowtest.TestKeeper(t, openMemory, nil, func(_ *testing.T, s checkpointtest.Store, gateway string, by time.Duration) {
		s.(*checkpoint.Memory).Grow(gateway, by)
	})
}
