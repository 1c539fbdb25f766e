package supervisor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/notice"
)

// A deadman watches that sweeps appear. It is used by one goroutine.
type deadman struct {
	sweep  uint64
	by     string
	since  time.Time // when a new sweep was last seen
	told   bool
	posted uint64 // the last notice then
}

// look evaluates the store's answer, if there is one, and returns the time since which no new sweep
// was seen.
func (d *deadman) look(now time.Time, standing Standing, known bool, last uint64) (resumed bool) {
	if d.since.IsZero() {
		d.since = now
	}
	if known && (standing.Sweep != d.sweep || standing.By != d.by) {
		resumed = d.told
		d.sweep = standing.Sweep
		d.by = standing.By
		d.since = now
		d.told = false
		d.posted = last
	}
	return resumed
}

// runDeadman pages where no report has appeared for two intervals, at every node but the one that
// sweeps.
func (s *Supervisor) runDeadman(ctx context.Context) {
	d := deadman{since: time.Now()}
	settings := s.cfg.Settings
	for ctx.Err() == nil {
		_ = retry.Sleep(ctx, min(settings.Interval/4, time.Second))
		looking, cancel := context.WithTimeout(ctx, settings.Interval/3)
		standing, err := s.store.Look(looking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		if err == nil {
			settings = s.cfg.Settings.in(standing.Change)
		}
		if d.look(now, standing, err == nil, s.lastPosted()) {
			s.cfg.Board.Post(notice.Notice{
				Channel: notice.Health, Kind: notice.KindSweepResumed, Level: notice.Info, Text: "components are looked after again, by " + standing.By,
				Fields: map[string]any{"code": string(fault.SupervisorSwept), "by": standing.By},
			})
		}
		silence := now.Sub(d.since)
		missing := err == nil && !s.cfg.Leads() && silence >= 2*settings.Interval // without the store nobody knows
		var unswept *time.Time
		if due := d.since.Add(settings.Interval); missing {
			unswept = &due
		}
		s.unswept.Store(unswept)
		if d.told || !missing || silence < 2*settings.Interval+s.rank(d.by) {
			continue
		}
		d.told = true
		if s.toldElsewhere(d.posted) {
			continue
		}
		text := fmt.Sprintf("no sweep over the components for %s: nobody looks after them", silence.Truncate(time.Millisecond))
		s.cfg.Board.Post(notice.Notice{
			Channel: notice.Health, Kind: notice.KindSweepMissing, Level: notice.Info, Text: text,
			Fields: map[string]any{
				"code": string(fault.SupervisorMissing), "last_sweep": d.sweep, "last_by": d.by, "silence_seconds": silence.Seconds(),
			},
		})
	}
}

// Unswept returns since when the next look at the components is due, and an error if that is too
// long. It is nil at the node that looks.
func (s *Supervisor) Unswept() (since time.Time, err error) {
	at := s.unswept.Load()
	if at == nil {
		return since, nil
	}
	return *at, fault.Newf(fault.SupervisorMissing, "the next sweep is late by %s", time.Since(*at).Truncate(time.Second))
}

// rank is how much longer than the first node this one waits before it pages, so that usually one
// does.
func (s *Supervisor) rank(silent string) time.Duration {
	view, _ := s.cfg.Members()
	view.Members = slices.DeleteFunc(slices.Clone(view.Members), func(m cluster.Member) bool { return m.Node == silent })
	members := slices.SortedFunc(slices.Values(view.Members), func(a, b cluster.Member) int { return strings.Compare(a.Node, b.Node) })
	before := slices.IndexFunc(members, func(m cluster.Member) bool { return m.Node == s.cfg.Member.Node })
	return time.Duration(min(max(before, 0), 10)) * rankStep
}

const rankStep = time.Second

// lastPosted returns the id of the last notice.
func (s *Supervisor) lastPosted() uint64 {
	if posted, _ := s.cfg.Board.Since(0); len(posted) > 0 {
		return posted[len(posted)-1].ID
	}
	return 0
}

// toldElsewhere reports whether another node has paged since a notice.
func (s *Supervisor) toldElsewhere(since uint64) bool {
	posted, _ := s.cfg.Board.Since(since)
	return slices.ContainsFunc(posted, func(n notice.Notice) bool { return n.Kind == notice.KindSweepMissing && n.Relayed && !n.Past })
}
