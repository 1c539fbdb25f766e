package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/notice"
)

// Checks in addition to those in heartbeats.
const (
	checkHeartbeat = "heartbeat" // fails where the last one is late
	checkStatus    = "status"    // fails where the member calls itself unhealthy
)

// critical says whether a member whose check fails cannot do its work.
func (m *member) critical(check string) bool {
	switch check {
	case checkHeartbeat, checkStatus:
		return true
	case cluster.CheckMongoDB, cluster.CheckEtcd, cluster.CheckCheckpoint, cluster.CheckGateway:
		return m.Serves()
	}
	return false
}

// failed returns the checks that a member fails.
func (m *member) failed() []string { return slices.Sorted(maps.Keys(m.failing)) }

// Excused says whether a member cannot be expected to take or hand over partitions, for reasons
// outside the member.
func (c *health) Excused(m *member) bool {
	for check := range m.failing {
		if _, shared := c.shared[check]; shared && m.critical(check) {
			return true
		}
	}
	return m.Garbled
}

// judge finds out how the members are.
func (c *health) judge() {
	clear(c.counts)
	total := 0
	widest := c.widest()
	for i, m := range c.present {
		c.refuse(m, &c.seats[i])
		c.narrow(m, &c.seats[i], widest)
		c.check(m, &c.seats[i])
		if m.Serves() && m.refused == "" {
			total++
			for check := range m.failing {
				c.counts[check]++
			}
		}
	}
	c.share(total)
	for _, m := range c.present {
		c.rate(m)
	}
}

// refuse finds members that cannot take part, and reports each once.
func (c *health) refuse(m *member, seat *cluster.Member) {
	var code fault.Code
	var why string
	switch {
	case m.Garbled:
		code = fault.ClusterHeartbeat
		why = "its heartbeat cannot be read"
	case seat.Count != 0 && seat.Count != c.cfg.Partitions && m.Serves():
		code = fault.CheckpointPartitions
		why = fmt.Sprintf("it has %d partitions, the cluster %d", seat.Count, c.cfg.Partitions)
	}
	if code != "" && m.refused != code {
		c.say(event{What: eventRejected, Member: m, Code: code, Why: why})
	}
	if code == "" && m.refused != "" {
		c.unsettle(m)
	}
	m.refused = code
}

// check notes which checks fail, and since when.
func (c *health) check(m *member, seat *cluster.Member) {
	if m.Fresh && !m.Garbled {
		for check := range m.failing {
			if _, told := seat.Checks[check]; !told && check != checkStatus && check != checkHeartbeat {
				delete(m.failing, check)
			}
		}
		told := false
		for check, ok := range seat.Checks {
			c.fails(m, check, !ok)
			told = told || !ok && m.critical(check)
		}
		c.fails(m, checkStatus, m.reported == cluster.StatusUnhealthy && !told) // else the check says more
	}
	late := m.heard + c.cfg.Late
	c.fails(m, checkHeartbeat, c.now >= late)
	c.at(late)
}

func (c *health) fails(m *member, check string, fails bool) {
	_, failing := m.failing[check]
	switch {
	case fails && !failing:
		if m.failing == nil {
			m.failing = make(map[string]time.Duration, 1)
		}
		m.failing[check] = c.now
	case !fails && failing:
		delete(m.failing, check)
	}
}

// share finds the checks that fail for so many members that moving partitions would not help, or
// that the leader should doubt itself.
func (c *health) share(total int) {
	deaf := false
	if leader := c.members[c.cfg.Node]; leader != nil && leader.Present {
		_, deaf = leader.failing[checkHeartbeat]
	}
	isShared := func(check string) bool {
		n := c.counts[check]
		return n >= 2 && 2*n >= total || n > 0 && n == total || n > 0 && check == checkHeartbeat && deaf
	}
	for _, check := range slices.Sorted(maps.Keys(c.counts)) {
		if _, known := c.shared[check]; !known && isShared(check) {
			c.shared[check] = c.now
			c.say(event{What: eventDegraded, Level: notice.Critical, Checks: []string{check}, Number: c.counts[check], Total: total})
		}
	}
	for _, check := range slices.Sorted(maps.Keys(c.shared)) {
		if !isShared(check) {
			c.say(event{What: eventRecovered, Checks: []string{check}, For: c.now - c.shared[check]})
			delete(c.shared, check)
			c.spare(check)
		}
	}
}

// recovery is how much later than others a member may pass what all of them failed: each tries
// again in its own time, and waits the longer the longer it failed, half a minute where its circuit
// breaker has opened.
const recovery = time.Minute

// spare lets those who still fail a check have more time than one that fails it alone. Silence is
// different: it gets no additional time.
func (c *health) spare(check string) {
	for _, m := range c.members {
		if _, fails := m.failing[check]; fails && check != checkHeartbeat {
			m.failing[check] = c.now + recovery
		}
	}
}

// rate gives a member its status.
func (c *health) rate(m *member) {
	before := m.Status
	level := notice.Severity("")
	confirmed := ""
	m.Shared = len(m.failing) > 0
	for _, check := range m.failed() {
		_, shared := c.shared[check]
		if shared {
			m.failing[check] = c.now // a check that all members fail accuses none of them
		}
		m.Shared = m.Shared && shared
		if !m.critical(check) {
			level = cmp.Or(level, notice.Warning)
			continue
		}
		patience := c.cfg.Confirm
		if check == checkHeartbeat {
			level = cmp.Or(level, notice.Warning)
			patience = c.cfg.Silent - c.cfg.Late
		} else {
			level = notice.Critical
		}
		switch due := m.failing[check] + patience; {
		case shared:
		case c.now < due:
			c.at(due)
		case confirmed == "" || check == checkHeartbeat:
			confirmed = check
		}
	}
	if m.reported == cluster.StatusDegraded {
		level = cmp.Or(level, notice.Warning)
	}
	silent := confirmed == checkHeartbeat
	switch {
	case m.refused != "" && !(m.Garbled && silent):
		m.Status = StatusRefused
		level = ""
	case m.reported == cluster.StatusStopping && !silent:
		m.Status = cluster.StatusStopping
		level = ""
	case silent:
		m.Status = StatusDead
	case confirmed != "":
		m.Status = cluster.StatusUnhealthy
		level = notice.Critical
	case level != "":
		m.Status = cluster.StatusDegraded
	default:
		m.Status = m.reported
	}
	c.degradation(m, level)
	c.turned(m, before, confirmed)
}

// turned acts on a change of status.
func (c *health) turned(m *member, before cluster.Status, check string) {
	if m.Status == before {
		return
	}
	switch {
	case m.Status == StatusDead:
		silence := (c.now - m.heard).Round(100 * time.Millisecond)
		why := fmt.Sprintf("nothing is heard of it for %s, though its lease lives", silence)
		if !m.Serves() {
			why = fmt.Sprintf("no node has had a session of it for %s", silence)
		}
		c.die(m, why)
		return
	case m.Status == cluster.StatusUnhealthy:
		c.lose(m)
		c.unsettle(m)
		c.say(event{What: eventSick, Member: m, Why: check})
	case m.Status == cluster.StatusStopping:
		c.unsettle(m)
		c.say(event{What: eventStops, Member: m})
	}
	switch {
	case before == StatusDead && m.up != c.now:
		m.pending = c.now
		c.say(event{What: eventHeard, Member: m})
	case before == cluster.StatusUnhealthy:
		m.pending = c.now
	}
}

// degradation reports when a member gets worse than last reported, and when it has recovered.
func (c *health) degradation(m *member, level notice.Severity) {
	begins := level != "" && m.told == ""
	isWorse := level == notice.Critical && m.told != notice.Critical
	switch {
	case begins || isWorse:
		if m.told == "" {
			m.toldAt = c.now
		}
		m.told = level
		c.say(event{What: eventDegraded, Member: m, Level: level, Checks: m.failed()})
	case level == "" && m.told != "":
		m.told = ""
		if m.Status == cluster.StatusHealthy || m.Status == cluster.StatusStarting {
			c.say(event{What: eventRecovered, Member: m, For: c.now - m.toldAt})
		}
	}
}
