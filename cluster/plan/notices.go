package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/notice"
)

// hear does what events ask for.
func (s *Planner) hear(events []event) {
	s.hearDeaths(events)
	for _, e := range events {
		if e.Member != nil && !e.Member.Serves() {
			s.hearGateway(e)
			continue
		}
		switch e.What {
		case eventCame:
			s.tell("%s is there: it is given partitions once it has settled", e.Member.Node)
		case eventLeft:
			s.dequeue(e.Member.key)
			s.tell("%s has left", e.Member.Node)
		case eventHeard:
			s.tell("%s is heard again", e.Member.Node)
		case eventSettled:
			s.tell("%s has settled", e.Member.Node)
			s.because(replanJoin, e.Member.Node, "joined")
		case eventBegan:
			s.because(replanColdStart, "", "cold start with "+some(e.Number, "node"))
		case eventStops:
			s.tell("%s stops: its partitions go to others", e.Member.Node)
			s.because(replanLeave, e.Member.Node, "leaves")
		case eventSick:
			s.because(replanUnhealthy, e.Member.Node, "is unhealthy ("+e.Why+")")
		case eventDied:
			s.died(e)
		case eventRestarted:
			s.restarted(e)
		case eventRejected:
			entry, _ := fault.Lookup(e.Code)
			if e.Member.Narrow {
				s.because(replanDirective, e.Member.Node, "does not cover what others do")
			}
			s.post(notice.Notice{Channel: notice.Health, Kind: notice.KindMemberRefused, Level: notice.Info,
				Text:   fmt.Sprintf("%s is given nothing: %s. %s", e.Member.Node, e.Why, entry.Remedy),
				Fields: map[string]any{"member": e.Member.Node, "code": string(e.Code)}})
		case eventDegraded:
			s.degraded(e)
		case eventRecovered:
			s.recovered(e)
		case eventClosed:
			s.closed(e.Member, e.For, "is another process, and is given partitions again")
		}
	}
}

// died reports a dead member, and makes the planner reassign its partitions.
func (s *Planner) died(e event) {
	m := e.Member
	s.dequeue(m.key)
	orphans := []int{}
	for p := range s.parts {
		if s.parts[p].planned == m.Node || s.parts[p].holder == m.Node {
			orphans = append(orphans, p)
		}
	}
	s.post(notice.Notice{Channel: notice.Health, Kind: notice.KindDead, Level: notice.Info,
		Text: fmt.Sprintf("%s is dead: %s. Reassigning its %s.", m.Node, e.Why, some(len(orphans), "partition")),
		Fields: map[string]any{
			"member": m.Node, "member_kind": string(m.Kind), "partitions": orphans, "last_heartbeat": Ago(max(e.For, 0)),
		}})
	// Its history does not matter now.
	s.covered -= len(slices.DeleteFunc(slices.Clone(s.causes[:s.covered]), func(c cause) bool { return c.node != m.Node }))
	s.causes = slices.DeleteFunc(s.causes, func(c cause) bool { return c.node == m.Node })
	s.because(replanEmergency, m.Node, "is dead")
}

// restarted has a member resynced.
func (s *Planner) restarted(e event) {
	m := e.Member
	for p := range s.parts {
		if s.parts[p].planned == m.Node {
			s.parts[p].restart(s.now)
		}
	}
	text := fmt.Sprintf("%s has restarted.", m.Node)
	if e.Level == notice.Warning {
		text = fmt.Sprintf("%s restarts again and again: look into its log.", m.Node)
	}
	s.post(notice.Notice{Channel: notice.Health, Kind: notice.KindRestarted, Level: e.Level, Text: text, Fields: map[string]any{
		"member": m.Node, "member_kind": string(m.Kind), "version": e.Version,
		"old_started_at": e.Old.UTC().Format(time.RFC3339), "new_started_at": e.New.UTC().Format(time.RFC3339),
	}})
	s.enqueue(m)
}

// Ago is a field of a notice: how long ago something was, 0 where that is unknown. The planner has
// no clock of its own; who posts the notice makes a time of it.
type Ago time.Duration

// Time returns when it was, as text, by the clock that says that it is now.
func (a Ago) Time(now time.Time) string {
	if a <= 0 {
		return "unknown"
	}
	return now.Add(-time.Duration(a)).UTC().Format(time.RFC3339)
}

// degraded reports that a member fails checks, or half of all fail one.
func (s *Planner) degraded(e event) {
	node, kind, text := "cluster", "cluster", ""
	switch {
	case e.Member == nil:
		text = fmt.Sprintf("%d of %d nodes fail %s: no partition is moved until fewer than half of them do.", e.Number, e.Total, e.Checks[0])
	default:
		node = e.Member.Node
		kind = string(e.Member.Kind)
		text = fmt.Sprintf("%s calls itself degraded: it keeps its partitions and gets no new ones.", node)
		if len(e.Checks) > 0 {
			text = fmt.Sprintf("%s is degraded: it keeps its partitions and gets no new ones. It fails: %s.", node, strings.Join(e.Checks, ", "))
		}
	}
	s.post(notice.Notice{Channel: notice.Degradation, Kind: notice.KindDegraded, Level: notice.Info, Text: text,
		Fields: map[string]any{"member": node, "member_kind": kind, "failed_checks": e.Checks}})
}

// recovered reports that it is healthy again.
func (s *Planner) recovered(e event) {
	node, kind, text := "cluster", "cluster", ""
	if e.Member == nil {
		text = fmt.Sprintf("Most nodes pass %s: partitions are moved again where it helps.", e.Checks[0])
	} else {
		node = e.Member.Node
		kind = string(e.Member.Kind)
		text = fmt.Sprintf("%s is well again.", node)
	}
	s.post(notice.Notice{Channel: notice.Degradation, Kind: notice.KindRecovered, Level: notice.Info, Text: text,
		Fields: map[string]any{"member": node, "member_kind": kind, "was_degraded_seconds": e.For.Seconds()}})
}

// opened reports that a member's assignment breaker has opened.
func (s *Planner) opened(m *member, failures, n int) {
	s.post(notice.Notice{Channel: notice.Breaker, Kind: notice.KindBreakerOpened, Level: notice.Info,
		Text: fmt.Sprintf("%s does not serve what it is given: it is given nothing for %s, then one partition to try.", m.Node, s.cfg.OpenFor),
		Fields: map[string]any{
			"breaker": "assignment " + m.Node, "member": m.Node, "failure_count": failures,
			"reason": fmt.Sprintf("%s not served or given up within %s", some(n, "partition"), s.cfg.Grace),
		}})
}

// closed reports that it has closed.
func (s *Planner) closed(m *member, after time.Duration, why string) {
	s.post(notice.Notice{Channel: notice.Breaker, Kind: notice.KindBreakerClosed, Level: notice.Info,
		Text:   fmt.Sprintf("%s %s.", m.Node, why),
		Fields: map[string]any{"breaker": "assignment " + m.Node, "member": m.Node, "was_open_seconds": after.Seconds()}})
}
