package streamer

import (
	"context"
	"time"

	"mongostream/change"
	"mongostream/gap"
)

// A Surveyor tells how far MongoDB's log goes.
type Surveyor interface {
	// Survey asks the server. It blocks on the network until the context ends.
	Survey(ctx context.Context) (gap.Reach, error)
}

// A survey is what was learnt last.
type survey struct {
	reach gap.Reach
	at    time.Time
}

const (
	surveyEvery   = 5 * time.Second
	surveyTimeout = 4 * time.Second
	// surveyAge is how old a survey may be and still be believed.
	surveyAge = 20 * time.Second
)

// runSurvey asks how far the log goes, again and again, until the context ends.
func (n *Node) runSurvey(ctx context.Context) {
	tick := time.NewTicker(surveyEvery)
	defer tick.Stop()
	for {
		asking, cancel := context.WithTimeout(ctx, surveyTimeout)
		reach, err := n.cfg.Surveyor.Survey(asking)
		cancel()
		if err == nil {
			n.note(reach)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// note keeps a survey, and tells the log which positions are about to be lost.
func (n *Node) note(r gap.Reach) {
	n.surveyed.Store(&survey{reach: r, at: time.Now()})
	if !r.First.IsZero() {
		n.log.SetFloor(change.Timestamp{T: r.First.T + uint32(n.critical(r).Seconds())})
	}
}

// surveyRecently returns a survey that is no older than the last round, and asks where there is none: one consumer for all.
func (n *Node) surveyRecently(ctx context.Context) (gap.Reach, error) {
	n.asking.Lock()
	defer n.asking.Unlock()
	if s := n.surveyed.Load(); s != nil && time.Since(s.at) < surveyEvery {
		return s.reach, nil
	}
	return n.surveyNow(ctx)
}

// surveyNow asks how far the log goes and goes on asking until there is an answer or the context ends.
func (n *Node) surveyNow(ctx context.Context) (reach gap.Reach, err error) {
	err = insist(ctx, func() error {
		asking, cancel := context.WithTimeout(ctx, surveyTimeout)
		defer cancel()
		reach, err = n.cfg.Surveyor.Survey(asking)
		return err
	}, func(err error) { n.logger.Warn("MongoDB does not tell how far its log goes", "error", err) })
	if err == nil {
		n.note(reach)
	}
	return reach, err
}

// latest returns the last survey, ok is false where there is none that can be believed.
func (n *Node) latest(now time.Time) (r gap.Reach, ok bool) {
	s := n.surveyed.Load()
	if s == nil || now.Sub(s.at) > surveyAge {
		return r, false
	}
	return s.reach, true
}

// critical is the head-room below which a lane must catch up before all others: as configured, but never more than a quarter of the
// log, because in a short log every position is near its end.
func (n *Node) critical(r gap.Reach) time.Duration { return min(n.cfg.HeadRoomCritical, r.Length()/4) }

// warning is the head-room below which an operator is warned: as configured, but never more than half of the log.
func (n *Node) warning(r gap.Reach) time.Duration { return min(n.cfg.HeadRoomWarning, r.Length()/2) }
