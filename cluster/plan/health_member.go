package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/notice"
)

const (
	forget    = 30 * time.Minute // memory of members that are gone
	maxGone   = 1024             // and of how many
	calmFor   = 5 * time.Minute  // after this uptime the next loss of a member counts as its first
	maxLosses = 6                // the settle time doubles with each loss, up to this one
	crashes   = 3                // after this many losses a quick restart loses the member's place
)

// A member is the leader's knowledge of one name.
type member struct {
	Node     string
	key      string // in health.members
	Kind     cluster.Kind
	Capacity float64
	Status   cluster.Status
	Present  bool          // it is there
	Settled  bool          // it has been there for long enough
	Shared   bool          // all that it fails, half of the others fail too
	Late     bool          // it should serve partitions and does not, by the policy
	Narrow   bool          // another member reads more, or serves more sinks
	Losses   int           // how often it was lost lately
	Gave     time.Duration // when it last handed over a partition as planned, by the policy

	turn    uint64        // the look that saw it last
	up      time.Duration // when it came
	gone    time.Duration // when it went, if it is not seated
	pending time.Duration // since when it waits to be settled

	heartbeat
	failures
	reports
}

// A heartbeat is what a member's last one said, and when that was.
type heartbeat struct {
	Process      string
	Fresh        bool // it was heard since the last look
	Garbled      bool // it cannot be read
	started      time.Time
	joined, beat int64
	reported     cluster.Status
	heard        time.Duration // when it last changed
}

// failures are those of a member's present process.
type failures struct {
	failing map[string]time.Duration // checks that fail, since when that counts
	breaker breaker
	cool    time.Duration // until when it rests because it failed
	rests   int           // how often that was lately
}

// reports are what notices have said of a member.
type reports struct {
	refused fault.Code      // why it was refused
	told    notice.Severity // of degradation
	toldAt  time.Duration
}

// Serves says whether the member is one that serves partitions.
func (m *member) Serves() bool { return m.Kind != cluster.KindGateway }

// Lost reports whether the member's status costs it its partitions.
func (m *member) Lost() bool {
	return !m.Present || m.Status == StatusDead || m.Status == cluster.StatusUnhealthy || m.Status == StatusRefused && !m.Garbled
}

// Keeps reports whether the member may keep its partitions.
func (m *member) Keeps() bool { return !m.Lost() && m.Status != cluster.StatusStopping }

// look takes the members of the view in.
func (c *health) look() {
	c.present = c.present[:0]
	c.seats = append(c.seats[:0], c.view.Members...)
	c.nodes = len(c.view.Members)
	c.seatGateways()
	for i := range c.seats {
		c.seat(i)
	}
	var left, gone []*member
	for _, m := range c.members {
		switch {
		case m.turn == c.turn:
		case m.Present:
			left = append(left, m)
		case c.now-m.gone > forget:
			delete(c.members, m.key)
		default:
			gone = append(gone, m)
		}
	}
	slices.SortFunc(left, func(a, b *member) int { return strings.Compare(a.key, b.key) })
	for _, m := range left {
		c.depart(m)
	}
	if over := len(gone) - maxGone; over > 0 { // those that went first
		slices.SortFunc(gone, func(a, b *member) int { return cmp.Or(cmp.Compare(a.gone, b.gone), strings.Compare(a.key, b.key)) })
		for _, m := range gone[:over] {
			delete(c.members, m.key)
		}
	}
}

// seat takes the seat of an index in.
func (c *health) seat(i int) {
	seat := &c.seats[i]
	key := c.seats[i].Node
	kind := cluster.KindNode
	if i >= c.nodes {
		key = gatewayKey(seat.Node)
		kind = cluster.KindGateway
	}
	m := c.members[key]
	if m == nil {
		m = &member{Node: seat.Node, key: key, Kind: kind}
		c.members[key] = m
	}
	back := !m.Present
	known := m.Process != ""
	m.turn = c.turn
	m.Present = true
	m.Fresh = back || m.beat != seat.Beat || m.joined != seat.Joined
	c.present = append(c.present, m)
	if back {
		m.up = c.now
		m.pending = c.now
		m.Status = cluster.StatusStarting
		m.told = ""
		m.toldAt = 0
		m.failing = nil
		if c.turn > 1 {
			if m.Serves() {
				c.changed = c.now
			}
			c.say(event{What: eventCame, Member: m})
		}
	}
	if !m.Fresh {
		return
	}
	m.heard = c.now
	m.joined = seat.Joined
	m.beat = seat.Beat
	if m.Garbled = seat.Garbled != nil; m.Garbled {
		return
	}
	m.Kind = cmp.Or(seat.Kind, cluster.KindNode)
	if known && (m.Process != seat.Process || !m.started.Equal(seat.StartedAt)) {
		c.restarted(m, seat, back)
	}
	m.Process, m.started, m.Capacity = seat.Process, seat.StartedAt, seat.Capacity
	switch m.reported = seat.Status; m.reported {
	case cluster.StatusStarting, cluster.StatusDegraded, cluster.StatusUnhealthy, cluster.StatusStopping:
	default: // or of another version: it is heard
		m.reported = cluster.StatusHealthy
	}
}

// restarted clears the knowledge of the previous process.
func (c *health) restarted(m *member, seat *cluster.Member, back bool) {
	if !back {
		c.lose(m)
		if m.Status == cluster.StatusStopping || m.Losses >= crashes {
			c.unsettle(m)
		}
	}
	if m.breaker.notClosed {
		c.say(event{What: eventClosed, Member: m, For: c.now - m.breaker.since})
	}
	m.failures = failures{}
	m.up = c.now
	level := notice.Info
	if m.Losses >= crashes {
		level = notice.Warning
	}
	c.say(event{What: eventRestarted, Member: m, Level: level, Old: m.started, New: seat.StartedAt, Version: seat.Version})
}

// depart takes in that a member's seat is gone.
func (c *health) depart(m *member) {
	before := m.Status
	m.Present = false
	m.gone = c.now
	m.refused = ""
	if m.Serves() {
		c.changed = c.now
	}
	switch {
	case before == cluster.StatusStopping, before == StatusRefused && !m.Garbled:
		c.say(event{What: eventLeft, Member: m})
	case before == StatusDead:
	default:
		c.die(m, "its lease has ended")
	}
	m.Status = StatusDead
	m.Settled = false
	m.Garbled = false
}

// die reports a dead member.
func (c *health) die(m *member, why string) {
	m.Status = StatusDead
	c.lose(m)
	c.unsettle(m)
	c.say(event{What: eventDied, Member: m, Why: why, For: c.now - m.heard})
}

// lose counts that a member was lost.
func (c *health) lose(m *member) {
	if c.now-m.up >= calmFor {
		m.Losses = 0
	}
	m.Losses = min(m.Losses+1, maxLosses)
}

// unsettle makes a member wait again before it gets partitions.
func (c *health) unsettle(m *member) { m.Settled, m.pending = false, c.now }
