//go:build !linux

package cluster

import "time"

// processStart is where SinceBoot counts from.
var processStart = time.Now() //nolint:gochecknoglobals // a constant of the process

// SinceBoot reads a clock that never goes back. On this system it may stand still while the machine
// is suspended: a claim that runs out then is noticed when etcd says so.
func SinceBoot() time.Duration { return time.Since(processStart) }
