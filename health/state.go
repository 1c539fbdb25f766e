package health

import "time"

// A Status is the state of a node or of a partition.
type Status string

// The states of a node; a partition has more.
const (
	Healthy   Status = "healthy"
	Degraded  Status = "degraded"
	Unhealthy Status = "unhealthy"
)

// The states of a partition, from the worst on; a partition is in the first that fits.
const (
	Failed     Status = "failed"      // ended for good; a person must act
	Stale      Status = "stale"       // subscribers have yet to acknowledge that they lost something
	NoMajority Status = "no_majority" // MongoDB has no majority, so there is nothing to read
	Stuck      Status = "stuck"       // nothing comes although the log moves, or MongoDB does not answer
	Lagging    Status = "lagging"     // later than the lag threshold
	Idle       Status = "idle"        // well, and nothing happens
)

// An Evidence has the facts that decide the state of a partition.
type Evidence struct {
	Failed, Stale     bool
	NoMajority, Stuck bool
	Lag, LagThreshold time.Duration // Lag is 0 while unknown
	Quiet             bool          // nothing has happened for a while
}

// Status concludes.
func (e Evidence) Status() Status {
	switch {
	case e.Failed:
		return Failed
	case e.Stale:
		return Stale
	case e.NoMajority:
		return NoMajority
	case e.Stuck:
		return Stuck
	case e.Lag > e.LagThreshold:
		return Lagging
	case e.Quiet:
		return Idle
	}
	return Healthy
}
