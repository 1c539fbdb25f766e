package checkpoint_test

import (
	"testing"

	"github.com/mongostream/streamer/checkpoint/rowtest"
)

func TestMemoryKeepsRows(t *testing.T) { rowtest.TestKeeper(t, openMemory, nil) }
