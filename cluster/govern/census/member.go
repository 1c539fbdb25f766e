package census

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/notice"
)

const (
	forget    = 30 * time.Minute // what is known of members that are gone
	maxGone   = 1024             // and of how many
	calmFor   = 5 * time.Minute  // a member that lives for so long is lost for the first time again
	maxLosses = 6                // the settle time doubles with each loss, up to this one
	crashes   = 3                // so many losses make a quick restart lose the place
)

// A Member is what the leader knows of one name.
type Member struct {
	Node     string
	Kind     roster.Kind
	Capacity float64
	Status   roster.Status
	Seated   bool // it is there
	Fresh    bool // a heartbeat was heard since the last look
	Garbled  bool // it cannot be read
	Settled  bool // it has been there for long enough
	Shared   bool // all that it fails, half of the others fail too
	Late     bool // it should serve partitions and does not: the policy says so
	Losses   int  // how often it was lost lately
	Process  string
	Gave     time.Duration // when it last gave up a partition that it was to give up: the policy says so

	started      time.Time
	joined, beat int64
	reported     roster.Status

	turn    uint64        // the look that saw it last
	heard   time.Duration // when its heartbeat last changed
	up      time.Duration // when it came
	gone    time.Duration // when it went, if it is not seated
	pending time.Duration // since when it waits to be settled

	refused fault.Code               // why it was refused, as told
	failing map[string]time.Duration // checks that fail, since when that counts
	told    notice.Severity          // of degradation, as told
	toldAt  time.Duration

	breaker breaker
	cool    time.Duration // until when it rests because it failed
	rests   int           // how often that was lately
}

// Serves says whether the member is one that serves partitions.
func (m *Member) Serves() bool { return m.Kind != roster.Gateway }

// Lost says whether the member is to lose what it has because of how it is.
func (m *Member) Lost() bool {
	return !m.Seated || m.Status == Dead || m.Status == roster.Unhealthy || m.Status == Refused && !m.Garbled
}

// Keeps says whether the member may keep what it has.
func (m *Member) Keeps() bool { return !m.Lost() && m.Status != roster.Stopping }

// look takes the members of the view in.
func (c *Census) look() {
	c.seats = c.seats[:0]
	for i := range c.view.Members {
		c.seat(&c.view.Members[i])
	}
	var left []*Member
	for _, m := range c.members {
		switch {
		case m.turn == c.turn:
		case m.Seated:
			left = append(left, m)
		case c.now-m.gone > forget, len(c.members) > maxGone+len(c.seats):
			delete(c.members, m.Node)
		}
	}
	slices.SortFunc(left, func(a, b *Member) int { return strings.Compare(a.Node, b.Node) })
	for _, m := range left {
		c.depart(m)
	}
}

// seat takes one seat in.
func (c *Census) seat(seat *roster.Seat) {
	m := c.members[seat.Node]
	if m == nil {
		m = &Member{Node: seat.Node, Kind: roster.Node}
		c.members[seat.Node] = m
	}
	back, known := !m.Seated, m.Process != ""
	m.turn, m.Seated = c.turn, true
	m.Fresh = back || m.beat != seat.Beat || m.joined != seat.Joined
	c.seats = append(c.seats, m)
	if back {
		m.up, m.pending, m.Status, m.told, m.toldAt = c.now, c.now, roster.Starting, "", 0
		m.failing = nil
		if c.turn > 1 {
			c.changed = c.now
			c.say(Event{What: Came, Member: m})
		}
	}
	if !m.Fresh {
		return
	}
	m.heard, m.joined, m.beat = c.now, seat.Joined, seat.Beat
	if m.Garbled = seat.Garbled != nil; m.Garbled {
		return
	}
	m.Kind = cmp.Or(seat.Kind, roster.Node)
	if known && (m.Process != seat.Process || !m.started.Equal(seat.StartedAt)) {
		c.restarted(m, seat, back)
	}
	m.Process, m.started, m.Capacity = seat.Process, seat.StartedAt, seat.Capacity
	switch m.reported = seat.Status; m.reported {
	case roster.Starting, roster.Degraded, roster.Unhealthy, roster.Stopping:
	default: // or of another version: it is heard
		m.reported = roster.Healthy
	}
}

// restarted clears what is known of the process that was there before.
func (c *Census) restarted(m *Member, seat *roster.Seat, back bool) {
	if !back {
		c.lose(m)
		if m.Status == roster.Stopping || m.Losses >= crashes {
			c.unsettle(m)
		}
	}
	if m.breaker.notClosed {
		c.say(Event{What: Closed, Member: m, For: c.now - m.breaker.since})
	}
	m.breaker, m.cool, m.rests, m.failing = breaker{}, 0, 0, nil
	m.up = c.now
	level := notice.Info
	if m.Losses >= crashes {
		level = notice.Warning
	}
	c.say(Event{What: Restarted, Member: m, Level: level, Old: m.started, New: seat.StartedAt, Version: seat.Version})
}

// depart takes in that a member's seat is gone.
func (c *Census) depart(m *Member) {
	before := m.Status
	m.Seated, m.gone, m.refused = false, c.now, ""
	c.changed = c.now
	switch {
	case before == roster.Stopping, before == Refused && !m.Garbled:
		c.say(Event{What: Left, Member: m})
	case before == Dead:
	default:
		c.die(m, "its lease has ended")
	}
	m.Status, m.Settled, m.Garbled = Dead, false, false
}

// die tells of a dead member.
func (c *Census) die(m *Member, why string) {
	m.Status = Dead
	c.lose(m)
	c.unsettle(m)
	c.say(Event{What: Died, Member: m, Why: why, For: c.now - m.heard})
}

// lose counts that a member was lost.
func (c *Census) lose(m *Member) {
	if c.now-m.up >= calmFor {
		m.Losses = 0
	}
	m.Losses = min(m.Losses+1, maxLosses)
}

// unsettle has a member wait anew until it is given partitions.
func (c *Census) unsettle(m *Member) { m.Settled, m.pending = false, c.now }
