package census

import (
	"time"

	"github.com/mongostream/streamer/cluster/roster"
)

// A Census is what the leader knows of the members. It is not for several goroutines at once.
type Census struct {
	cfg  Config
	turn uint64 // counts the looks
	now  time.Duration
	next time.Duration
	view roster.View

	members map[string]*Member
	seats   []*Member // by name, those that are there
	events  []Event

	began   time.Duration
	changed time.Duration // when somebody last came or went
	cold    bool
	counts  map[string]int           // members by check that fails
	shared  map[string]time.Duration // checks that half of them fail, since when
}

// New makes a Census of nobody.
func New(cfg Config) *Census {
	return &Census{cfg: cfg, members: make(map[string]*Member), counts: make(map[string]int), shared: make(map[string]time.Duration)}
}

// Look takes in who is there and who is not. Blind is how long nobody looked before, which counts against nobody.
func (c *Census) Look(now, blind time.Duration, view roster.View) []Event {
	c.turn++
	c.now, c.view, c.next = now, view, now+c.cfg.Beat
	if c.turn == 1 {
		c.began, c.changed, c.cold = now, now, coldly(view)
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

// Judge finds out how they are and who has settled. It ends the look: the view is let go.
func (c *Census) Judge() []Event {
	if c.turn == 1 {
		c.recall()
	}
	c.judge()
	c.settle()
	c.view = roster.View{}
	return c.told()
}

// Next returns when to look again.
func (c *Census) Next() time.Duration { return c.next }

// Cold says whether the cluster has been off and is waited for.
func (c *Census) Cold() bool { return c.cold }

// Member returns who is or was there by a name, nil if nobody.
func (c *Census) Member(node string) *Member { return c.members[node] }

// Seats returns who is there, by name. It is valid until the next look.
func (c *Census) Seats() []*Member { return c.seats }

// Sharing says whether half of the members fail the same check.
func (c *Census) Sharing() bool { return len(c.shared) > 0 }

// Standings returns how those who are there stand, by name.
func (c *Census) Standings() []Standing {
	standings := make([]Standing, len(c.seats))
	for i, m := range c.seats {
		standings[i] = Standing{
			Node: m.Node, Kind: m.Kind, Status: m.Status, Failing: m.failed(), Settled: m.Settled,
			Breaker: m.breaker.state(c.now), Silence: c.now - m.heard, Losses: m.Losses,
		}
	}
	return standings
}

// A Fitness says how good it is to give a member partitions: those of the best that there is are given some.
type Fitness int

// The fitnesses, the best first.
const (
	Fit        Fitness = iota
	Makeshift          // it has not settled, or is not at its best for reasons that are not its own
	LastResort         // it is degraded, or has failed
	Unfit
)

// Fitness says how fit a member that keeps what it has is for more, and whether it is to be tried with one partition because its breaker
// is half-open.
func (c *Census) Fitness(m *Member) (fitness Fitness, try bool) {
	if m.Garbled {
		return Unfit, false
	}
	if m.Status == roster.Degraded {
		if !m.Shared {
			return LastResort, false
		}
		fitness = Makeshift
	}
	if !m.Settled || m.Late || m.cool > c.now {
		fitness = Makeshift
		c.at(m.cool)
	}
	switch m.breaker.state(c.now) {
	case BreakerOpen:
		c.at(m.breaker.until)
		return LastResort, false
	case BreakerHalfOpen:
		return Makeshift, fitness == Fit
	}
	return fitness, false
}

// settle ends the cold start, and gives those that have waited long enough their place. A topology that does not come to rest holds
// nobody up for ever.
func (c *Census) settle() {
	if c.cold {
		c.settleCold()
		return
	}
	for _, m := range c.seats {
		if m.Settled || !m.Serves() || !m.Keeps() || m.Garbled {
			continue
		}
		ready := m.pending + c.cfg.Settle<<max(m.Losses-1, 0)
		due := max(ready, min(c.changed+c.cfg.Settle, ready+2*c.cfg.Settle))
		if due > c.now {
			c.at(due)
			continue
		}
		m.Settled = true
		c.say(Event{What: Settled, Member: m})
	}
}

// settleCold waits for the members at the start of a cluster that has been off.
func (c *Census) settleCold() {
	there := 0
	for _, m := range c.seats {
		if m.Serves() && !m.Lost() && !m.Garbled {
			there++
		}
	}
	missing := false // somebody of the last plan
	for _, node := range c.view.Plan.Owners {
		m := c.members[node]
		missing = missing || node == "" || m == nil || !m.Seated
	}
	all := c.cfg.Expected > 0 && there >= c.cfg.Expected || c.cfg.Expected == 0 && c.view.Plan.Version > 0 && !missing
	if due := c.began + c.cfg.Settle; there == 0 || !all && c.now < due {
		c.at(due)
		return
	}
	c.cold = false
	for _, m := range c.seats {
		m.Settled = true
	}
	c.say(Event{What: Began, Number: there})
}

// coldly says whether a leadership begins with a cluster that has been off: nobody owns anything, or so few are back of those whom the
// plan names that they cannot all have died with the last leader.
func coldly(view roster.View) bool {
	there := make(map[string]bool, len(view.Members))
	for _, seat := range view.Members {
		there[seat.Node] = true
	}
	owned := false
	for _, o := range view.Owners {
		owned = owned || o.Node != ""
	}
	planned, back := map[string]bool{}, 0
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

// recall settles those who have a place already when a leadership begins, and misses those who had one and are not there.
func (c *Census) recall() {
	for _, o := range c.view.Owners {
		if m := c.members[o.Node]; m != nil {
			m.Settled = m.Seated
		}
	}
	for _, node := range c.view.Plan.Owners {
		switch m := c.members[node]; {
		case m != nil:
			m.Settled = m.Seated
		case node != "" && !c.cold:
			m = &Member{Node: node, Kind: roster.Node, turn: c.turn, up: c.now, gone: c.now, heard: c.now}
			c.members[node] = m
			c.die(m, "it was not there when the leadership began")
		}
	}
}

// at asks to be called again at a moment that is yet to come.
func (c *Census) at(moment time.Duration) {
	if moment > c.now {
		c.next = min(c.next, moment)
	}
}

func (c *Census) say(e Event) { c.events = append(c.events, e) }

// told returns the events since it was last called.
func (c *Census) told() []Event {
	events := c.events
	c.events = nil
	return events
}
