package supervisor

import (
	"fmt"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/notice"
)

// tell posts the events of a sweep.
func (s *Supervisor) tell(events []Event, r *Report) {
	for _, e := range events {
		if e.Code == fault.SupervisorRecovered && e.finding.Action == actionNone {
			s.logger.Info("component makes progress again", "slug", e.Slug, "misses", e.finding.Misses)
			continue // no notice has reported that it did not
		}
		if e.Code == fault.SupervisorPaused {
			s.logger.Info("component not restarted: its restarts are paused", "slug", e.Slug, "misses", e.finding.Misses, "code", string(e.Code))
			continue // the operator who paused them knows; a notice says that it is down
		}
		s.cfg.Board.Post(s.notice(e))
	}
	if now := time.Now(); len(events) > 0 && !now.Before(s.tellAt) {
		s.tellAt = now.Add(time.Minute)
		s.cfg.Board.Post(notice.Notice{
			Channel: notice.Health, Kind: notice.KindSweepReport, Level: notice.Info,
			Text: fmt.Sprintf("sweep %d: %d of %d components are well, %d restarted", r.Sweep, r.Healthy, r.Total, r.Restarted),
			Fields: map[string]any{
				"code": string(fault.SupervisorSwept), "report_id": r.ID, "total_components": r.Total, "healthy_count": r.Healthy, "unhealthy_count": r.Unhealthy,
				"missed_count": r.Missed, "restarted_count": r.Restarted,
			},
		})
	}
}

// notice returns the notice about an event.
func (s *Supervisor) notice(e Event) notice.Notice {
	f := e.finding
	n := notice.Notice{Channel: notice.Health, Fields: map[string]any{"code": string(e.Code), "slug": e.Slug, "member": e.Node}}
	switch e.Code { //nolint:exhaustive // of an event
	case fault.SupervisorDown:
		n.Kind, n.Level = notice.KindComponentDown, notice.Info // the verdict says that it is wrong (package health)
		n.Text = fmt.Sprintf("%s has missed %d heartbeats: %s", e.Slug, f.Misses, f.Detail)
		n.Fields["miss_count"] = f.Misses
		n.Fields["cause"] = string(f.Cause)
		n.Fields["action"] = string(f.Action)
	case fault.SupervisorRecovered:
		n.Kind, n.Level = notice.KindComponentRecovered, notice.Info
		n.Text = e.Slug + " makes progress again"
	case fault.SupervisorRestarted:
		n.Kind, n.Level = notice.KindComponentRestarted, notice.Info
		n.Text = fmt.Sprintf("%s is restarted (%s): %s", e.Slug, e.level, f.Detail)
		n.Fields["process"] = f.Process
		n.Fields["level"] = string(e.level)
		n.Fields["cause"] = string(f.Cause)
	case fault.SupervisorBudget:
		n.Kind, n.Level = notice.KindRestartBudgetExhausted, notice.Info
		n.Text = fmt.Sprintf("%s was restarted %d times within %s and is not well: look for the cause before it is restarted again", e.Slug, s.cfg.Budget, s.cfg.Window)
		n.Fields["restarts"] = s.cfg.Budget
		n.Fields["window_seconds"] = s.cfg.Window.Seconds()
	case fault.SupervisorCascade:
		n.Kind, n.Level = notice.KindRestartsDamped, notice.Info
		n.Text = "too much fails at once to be restarted at once: " + strings.Join(e.Slugs, ", ")
		n.Fields = map[string]any{"code": string(e.Code), "slugs": e.Slugs, "cause": "many components fail in one sweep"}
	}
	return n
}
