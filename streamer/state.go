package streamer

import (
	"time"

	"mongostream/gap"
)

// A State is how a partition does.
type State string

// The states, from the worst on; a partition is in the first that fits.
const (
	Failed     State = "failed"      // ended for good; a person must act
	Recovering State = "recovering"  // dealing with a span that may have been missed
	Stale      State = "stale"       // subscribers have yet to acknowledge that they lost something
	NoMajority State = "no_majority" // MongoDB has no majority, so there is nothing to read
	Stuck      State = "stuck"       // nothing comes although the log moves, or MongoDB does not answer
	Lagging    State = "lagging"     // more than 30 s behind
	Idle       State = "idle"        // well, and nothing happens
	Healthy    State = "healthy"
)

const (
	// lagLimit is the lag from which a partition counts as lagging (the reliability design, section 7.2).
	lagLimit = 30 * time.Second
	// idleAfter is how long nothing happens before a partition counts as idle.
	idleAfter = time.Minute
	// stuckAfter is how long nothing may come while the log moves.
	stuckAfter = 30 * time.Second
	// majorityLimit is how far the majority may be behind the last operation.
	majorityLimit = 10 * time.Second
)

// An evidence is what a state is concluded from.
type evidence struct {
	failed, recovering, stale bool
	noMajority, stuck         bool
	lag                       time.Duration
	quiet                     bool
}

// state concludes.
func (e evidence) state() State {
	switch {
	case e.failed:
		return Failed
	case e.recovering:
		return Recovering
	case e.stale:
		return Stale
	case e.noMajority:
		return NoMajority
	case e.stuck:
		return Stuck
	case e.lag > lagLimit:
		return Lagging
	case e.quiet:
		return Idle
	}
	return Healthy
}

// streamEvidence is what the partitions have in common: how the node's reading does.
func (n *Node) streamEvidence(now time.Time, reach gap.Reach, known bool) evidence {
	stats := n.log.Stats()
	var e evidence
	if known && !reach.Majority.IsZero() {
		e.noMajority = reach.Last.Time().Sub(reach.Majority.Time()) > majorityLimit
	}
	silent := now.Sub(stats.LastReply) > stuckAfter
	e.stuck = silent && !stats.Paused && (stats.Open || now.Sub(n.begun) > stuckAfter)
	if known && stats.Open && !stats.Paused {
		e.stuck = e.stuck || reach.Last.Time().Sub(stats.End.Time.Time()) > stuckAfter && now.Sub(stats.Moved) > stuckAfter
	}
	return e
}
