package checkpoint_test

import (
	"testing"

	"mongostream/checkpoint/rowtest"
)

func TestMemoryKeepsRows(t *testing.T) { rowtest.TestKeeper(t, openMemory, nil) }
