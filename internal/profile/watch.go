package profile

import (
	"context"
	"time"

	"github.com/mongostream/streamer/change"
)

// A Partition is how one partition does.
type Partition struct {
	ID int
	// Position is how far it has been acknowledged.
	Position change.Position
	// Lag is the log time between the position and the log's end; 0 also while it is unknown.
	Lag time.Duration
}

const (
	lookEvery = time.Second
	dumpEvery = time.Minute
)

// runWatch looks at the partitions until the context ends, and dumps where one is in trouble.
func (p *Profiler) runWatch(ctx context.Context, dump func(reason string, now time.Time) (string, error)) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	w := watch{lag: p.cfg.LagThreshold, stall: p.cfg.StallThreshold, stood: make(map[int]standing)}
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		trouble, due := w.look(p.cfg.Partitions(), now)
		if !due {
			continue
		}
		name, err := dump(trouble.reason, now)
		if err != nil {
			p.logger.Warn("a flight recording is not complete", "error", err)
			continue
		}
		p.logger.Warn("flight recording written", "reason", trouble.reason, "partition", trouble.partition, "after", trouble.length, "file", name)
	}
}

// A watch decides when there is trouble that is worth a recording. It is pure.
type watch struct {
	lag, stall time.Duration
	stood      map[int]standing
	wrong      bool      // there was trouble when it last looked
	dumped     time.Time // zero before the first time
}

// A standing is since when a partition has been at a position.
type standing struct {
	position change.Position
	since    time.Time
}

// A trouble is a problem of a partition, and its extent.
type trouble struct {
	reason    string
	partition int
	length    time.Duration
}

// look returns the worst trouble, and whether a recording of it is due: it has just begun, and the
// last recording is a while ago.
func (w *watch) look(partitions []Partition, now time.Time) (worst trouble, due bool) {
	stood := make(map[int]standing, len(partitions))
	for _, p := range partitions {
		s, known := w.stood[p.ID]
		if !known || p.Lag <= 0 || p.Position.Compare(s.position) != 0 {
			s = standing{position: p.Position, since: now}
		}
		stood[p.ID] = s
		if still := now.Sub(s.since); still >= w.stall && still > worst.length {
			worst = trouble{reason: "stall", partition: p.ID, length: still}
		}
		if p.Lag >= w.lag && p.Lag > worst.length {
			worst = trouble{reason: "lag", partition: p.ID, length: p.Lag}
		}
	}
	w.stood = stood
	begins := worst.reason != "" && !w.wrong
	if begins && !w.dumped.IsZero() && now.Sub(w.dumped) < dumpEvery {
		return worst, false // still due when the minute is over
	}
	w.wrong = worst.reason != ""
	if begins {
		w.dumped = now
	}
	return worst, begins
}
