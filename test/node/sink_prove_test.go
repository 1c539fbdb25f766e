//go:build prove

package node

import (
	"testing"
	"time"
)

// Ten minutes of random histories of owners, at each target.
func TestProveTargetsKeepTheNewestState(t *testing.T) {
	judgeTargets(t, 10*time.Minute)
}
