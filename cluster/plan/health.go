package plan

import (
	"time"

	"github.com/mongostream/streamer/cluster"
)

// A health is the leader's knowledge of the members: which are present, whose heartbeats arrive,
// which checks fail, which have been present long enough for new partitions, and which fail to take
// them. [health.Look] takes a view of the cluster at a time and returns the members' events; the
// planner turns them into plans and notices. It is not safe for concurrent use.
//
//	starting, healthy   is given partitions
//	degraded            a check fails, or its heartbeat is late: keeps its partitions, gets no new ones
//	unhealthy           a critical check has failed for long enough: loses its partitions
//	dead                its lease has ended, or its heartbeat has not changed for long: loses its partitions at once
//	stopping            reports it itself: loses its partitions at once
//	refused             has another number of partitions, or its heartbeat cannot be read: is given nothing
//
// Ages are by the leader's clock, from when it saw a heartbeat change; members' timestamps are
// compared with their own only. Time in which the leader itself did not look is not counted.
//
// Gateways are members, too: the nodes name them in their heartbeats (gateway.go).
//
// A check that half of the members fail, and at least two, says nothing of any of them while that
// is so. Silence says nothing either while the leader's own heartbeat does not come through. Who
// still fails it afterwards has a minute longer than one that fails alone.
//
// A member that comes is settled after 10 s without anybody's coming or going, 30 s at most; twice
// as long with each loss of the same member, up to five times, unless it lives for 5 minutes. One
// that restarts so quickly that its seat is not seen empty keeps its place, up to the second time.
//
// The assignment breaker of a member is a state machine of a few lines here and not a library's,
// because the same steps must lead to the same decisions: it has no clock of its own.
type health struct {
	cfg  Config
	turn uint64 // counts the looks
	now  time.Duration
	next time.Duration
	view cluster.View

	members map[string]*member
	present []*member        // nodes and then gateways, both by name, that are there
	seats   []cluster.Member // of those that are present
	nodes   int              // how many of them are nodes
	events  []event

	began   time.Duration
	changed time.Duration // when a member last joined or left
	cold    bool
	counts  map[string]int           // members by check that fails
	shared  map[string]time.Duration // checks that half of them fail, since when
}

// newHealth makes a health without members.
func newHealth(cfg Config) *health {
	return &health{cfg: cfg, members: make(map[string]*member), counts: make(map[string]int), shared: make(map[string]time.Duration)}
}

// Look records which members are present. Blind is how long no leader looked before; that time
// counts against no member.
func (c *health) Look(now, blind time.Duration, view cluster.View) []event {
	c.turn++
	c.now = now
	c.view = view
	c.next = now + c.cfg.Beat
	if c.turn == 1 {
		c.began = now
		c.changed = now
		c.cold = coldly(view)
	}
	for _, m := range c.members {
		m.heard += blind
		m.Gave += blind
		for check := range m.failing {
			m.failing[check] += blind
		}
	}
	c.look()
	return c.told()
}

// Judge updates the members' status, and which have settled. It ends the look and releases the
// view.
func (c *health) Judge() []event {
	if c.turn == 1 {
		c.recall()
	}
	c.judge()
	c.settle()
	c.view = cluster.View{}
	clear(c.seats)
	return c.told()
}

// Next returns when to look again.
func (c *health) Next() time.Duration { return c.next }

// Cold says whether the cluster has been off and is waited for.
func (c *health) Cold() bool { return c.cold }

// Of returns the present or former member of that name, nil if there was none.
func (c *health) Of(node string) *member { return c.members[node] }

// Present returns the members of the view, by name. It is valid until the next look.
func (c *health) Present() []*member { return c.present[:c.nodes] }

// Sharing says whether half of the members fail the same check.
func (c *health) Sharing() bool { return len(c.shared) > 0 }

// Statuses returns the status of the present members: nodes and then gateways, both by name.
func (c *health) Statuses() []MemberStatus {
	standings := make([]MemberStatus, len(c.present))
	for i, m := range c.present {
		standings[i] = MemberStatus{
			Node: m.Node, Kind: m.Kind, Status: m.Status, Settled: m.Settled, Breaker: m.breaker.state(c.now),
		}
	}
	return standings
}

// A fitness says how good it is to give a member partitions: those of the best that there is are
// given some.
type fitness int

// The fitnesses, the best first.
const (
	fit        fitness = iota
	makeshift          // it has not settled, or is not at its best for reasons that are not its own
	lastResort         // it is degraded, or has failed
	unfit
)

// Fitness returns how fit a member that keeps its partitions is for more, and whether it gets one
// partition as a trial because its breaker is half-open.
func (c *health) Fitness(m *member) (fitness fitness, try bool) {
	if m.Garbled {
		return unfit, false
	}
	if m.Status == cluster.StatusDegraded {
		if !m.Shared {
			return lastResort, false
		}
		fitness = makeshift
	}
	if !m.Settled || m.Late || m.cool > c.now {
		fitness = makeshift
		c.at(m.cool)
	}
	switch m.breaker.state(c.now) {
	case BreakerOpen:
		c.at(m.breaker.until)
		return lastResort, false
	case BreakerHalfOpen:
		return makeshift, fitness == fit
	}
	return fitness, false
}

// settle ends the cold start, and admits members that have waited long enough. A topology that
// never becomes stable does not delay members for ever.
func (c *health) settle() {
	if c.cold {
		c.settleCold()
		return
	}
	for _, m := range c.present {
		mayServe := m.Serves() && m.Keeps() && !m.Garbled
		if m.Settled || !mayServe {
			continue
		}
		ready := m.pending + c.cfg.Settle<<max(m.Losses-1, 0)
		due := max(ready, min(c.changed+c.cfg.Settle, ready+2*c.cfg.Settle))
		if due > c.now {
			c.at(due)
			continue
		}
		m.Settled = true
		c.say(event{What: eventSettled, Member: m})
	}
}

// settleCold waits for the members at the start of a cluster that has been off.
func (c *health) settleCold() {
	there := 0
	for _, m := range c.present {
		if m.Serves() && !m.Lost() && !m.Garbled {
			there++
		}
	}
	missing := false // a member of the last plan
	for _, node := range c.view.Plan.Owners {
		m := c.members[node]
		missing = missing || node == "" || m == nil || !m.Present
	}
	all := c.cfg.Expected > 0 && there >= c.cfg.Expected || c.cfg.Expected == 0 && c.view.Plan.Version > 0 && !missing
	if due := c.began + c.cfg.Settle; there == 0 || !all && c.now < due {
		c.at(due)
		return
	}
	c.cold = false
	for _, m := range c.present {
		m.Settled = true
	}
	c.say(event{What: eventBegan, Number: there})
}

// coldly reports whether a leadership begins with a cluster that was off: no partition has an
// owner, or so few members of the plan are back that they cannot all have died with the last
// leader.
func coldly(view cluster.View) bool {
	there := make(map[string]bool, len(view.Members))
	for _, seat := range view.Members {
		there[seat.Node] = true
	}
	owned := false
	for _, o := range view.Owners {
		owned = owned || o.Node != ""
	}
	planned := map[string]bool{}
	back := 0
	for _, node := range view.Plan.Owners {
		if node != "" && !planned[node] {
			planned[node] = true
			if there[node] {
				back++
			}
		}
	}
	return !owned || 2*back < len(planned)
}

// recall settles members that have a place already when a leadership begins, and marks those as
// missing that had one and are absent.
func (c *health) recall() {
	for _, o := range c.view.Owners {
		if m := c.members[o.Node]; m != nil {
			m.Settled = m.Present
		}
	}
	for _, node := range c.view.Plan.Owners {
		switch m := c.members[node]; {
		case m != nil:
			m.Settled = m.Present
		case node != "" && !c.cold:
			m = &member{Node: node, key: node, Kind: cluster.KindNode, turn: c.turn, up: c.now, gone: c.now}
			m.heard = c.now
			c.members[node] = m
			c.die(m, "it was not there when the leadership began")
		}
	}
}

// at asks to be called again at a moment that is yet to come.
func (c *health) at(moment time.Duration) {
	if moment > c.now {
		c.next = min(c.next, moment)
	}
}

func (c *health) say(e event) { c.events = append(c.events, e) }

// told returns the events since it was last called.
func (c *health) told() []event {
	events := c.events
	c.events = nil
	return events
}
