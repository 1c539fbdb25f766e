//go:build race

package node

import "time"

const (
	// parallel is how many tests run at a time: the race detector makes all that compute several
	// times slower.
	parallel = "5"
	// patience bounds every wait for something that must come.
	patience = 8 * time.Minute
)
