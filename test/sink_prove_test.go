//go:build prove

package test

import "testing"

// The same for a minute.
func TestProveSinksOfKilledOwnersRepeatNothing(t *testing.T) {
	t.Parallel()
	sinkKills(t, 30)
}
