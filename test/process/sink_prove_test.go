//go:build prove

package process

import "testing"

// The same for a minute.
func TestProveSinksOfKilledOwnersRepeatNothing(t *testing.T) {
	t.Parallel()
	sinkKills(t, 30)
}
