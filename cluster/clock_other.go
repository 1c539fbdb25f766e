//go:build !linux

package cluster

import "time"

// processStart is the zero of SinceBoot.
var processStart = time.Now() //nolint:gochecknoglobals // a constant of the process

// SinceBoot reads a monotonic clock. On this system it may stop while the machine is suspended.
// Then the node learns from etcd that its claim has expired.
func SinceBoot() time.Duration { return time.Since(processStart) }
