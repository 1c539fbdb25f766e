package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/notice"
)

// gatewayNotices is the burst of notices about gateways; after it the leader posts one a second. A
// client may use any name, and connect and leave as often as it likes. The log counts the notices
// beyond that.
const gatewayNotices = 60

// gatewayKey is the key of a gateway. No node can have that name.
func gatewayKey(name string) string { return "\x00" + name }

// seatGateways adds the seats of gateways to those of nodes. A gateway that is not named keeps its
// seat, unheard, until it is dead, unless it has left. While a node does not name all of its
// gateways, none is counted as unheard.
func (c *health) seatGateways() {
	listed, whole := c.view.Gateways()
	named := make(map[string]bool, len(listed))
	for _, g := range listed {
		named[gatewayKey(g.Node)] = true
		for _, own := range []string{checkHeartbeat, checkStatus} { // mean something else here
			if _, fails := g.Checks[own]; fails {
				delete(g.Checks, own)
				g.Checks["its own "+own] = false
			}
		}
		c.seats = append(c.seats, g.Member)
	}
	for key, m := range c.members {
		switch {
		case key != gatewayKey(m.Node), !m.Present, named[key]:
		case !whole:
			m.Status = cluster.StatusStopping // departs without a word
		case m.Status != cluster.StatusStopping && m.Status != StatusDead:
			c.seats = append(c.seats, cluster.Member{Joined: m.joined, Beat: m.beat, Heartbeat: cluster.Heartbeat{Node: m.Node}})
		}
	}
	slices.SortFunc(c.seats[c.nodes:], func(a, b cluster.Member) int { return strings.Compare(a.Node, b.Node) })
}

// hearGateway posts the events of a gateway. They do not concern partitions, and no notice is
// critical: a client may use any name, and must not be able to page the cluster's operators.
func (s *Planner) hearGateway(e event) {
	m := e.Member
	name := fmt.Sprintf("Gateway %q", m.Node)
	n := notice.Notice{Fields: map[string]any{"member": m.Node, "member_kind": string(m.Kind)}}
	switch e.What {
	case eventLeft:
		s.dequeue(m.key)
		return
	case eventDied:
		s.dequeue(m.key) // it is told with others
		return
	case eventRestarted:
		n.Channel = notice.Health
		n.Kind = notice.KindRestarted
		n.Level = e.Level
		n.Text = name + " has restarted."
		if e.Level == notice.Warning {
			n.Text = name + " restarts again and again: look into its log."
		}
		n.Fields["old_started_at"] = e.Old.UTC().Format(time.RFC3339)
		n.Fields["new_started_at"] = e.New.UTC().Format(time.RFC3339)
	case eventDegraded:
		n.Channel, n.Kind, n.Level = notice.Degradation, notice.KindDegraded, notice.Info
		n.Text = fmt.Sprintf("%s is degraded. It fails: %s.", name, printable(strings.Join(e.Checks, ", ")))
		n.Fields["failed_checks"] = e.Checks
	case eventRecovered:
		n.Channel = notice.Degradation
		n.Kind = notice.KindRecovered
		n.Level = notice.Info
		n.Text = name + " is well again."
		n.Fields["was_degraded_seconds"] = e.For.Seconds()
	default:
		return
	}
	if s.words < 1 {
		s.unsaid++
		return
	}
	s.words--
	s.post(n)
	if e.What == eventRestarted {
		s.enqueue(m)
	}
}

// listed is how many gateways that die at once are named.
const listed = 8

// hearDeaths posts one notice about all gateways that have died since the last step.
func (s *Planner) hearDeaths(events []event) {
	var dead []event
	for _, e := range events {
		if e.What == eventDied && e.Member != nil && !e.Member.Serves() {
			dead = append(dead, e)
		}
	}
	switch {
	case len(dead) == 0:
		return
	case s.words < 1:
		s.unsaid += len(dead)
		return
	}
	s.words--
	names := make([]string, 0, listed)
	for _, e := range dead[:min(len(dead), listed)] {
		names = append(names, e.Member.Node)
	}
	text := fmt.Sprintf("Gateway %q is dead: %s.", names[0], dead[0].Why)
	if len(dead) > 1 {
		text = fmt.Sprintf("%d gateways are dead, among them %q.", len(dead), names)
	}
	s.post(notice.Notice{Channel: notice.Health, Kind: notice.KindDead, Level: notice.Info, Text: text, Fields: map[string]any{
		"member": names[0], "member_kind": string(dead[0].Member.Kind), "partitions": []int{}, "last_heartbeat": Ago(max(dead[0].For, 0)),
		"members": names, "count": len(dead),
	}})
}

// printable replaces characters that a terminal might interpret.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// refill permits as many notices about gateways as the time allows, and reports how many were
// suppressed.
func (s *Planner) refill(elapsed time.Duration) {
	s.words = min(gatewayNotices, s.words+elapsed.Seconds())
	if s.unsaid > 0 && s.words >= 1 {
		s.tell("%d notices about gateways were not posted: there were too many", s.unsaid)
		s.unsaid = 0
	}
}
