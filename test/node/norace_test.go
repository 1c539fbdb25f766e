//go:build !race

package node

import "time"

const (
	// parallel is how many tests run at a time: most of what they do is to wait.
	parallel = "12"
	// patience bounds every wait for something that must come.
	patience = 4 * time.Minute
)
