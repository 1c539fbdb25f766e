package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/notice"
)

// A Planner holds the knowledge of a leader. Each leadership has a new one: it accepts its first
// view, and moves nothing because of it. It is not safe for concurrent use.
type Planner struct {
	cfg    Config
	turn   uint64 // counts the steps
	now    time.Duration
	view   cluster.View
	d      Decision
	health *health

	parts   []part
	rates   rates         // as planned with
	ratedAt time.Duration // when the period began
	periods [][]float32   // the partitions' events a second in the last ones, the latest last

	causes   []cause
	covered  int    // how many of them the last plan was made for
	pending  uint64 // its version
	trading  int    // how many partitions it exchanges for balance alone
	traded   []int  // how many were exchanged in the last periods, the latest last
	balanced bool
	must     bool // some have to move
	drained  map[string]bool
	last     Input // that asked for no other plan

	queue  []resync
	tokens float64
	recent []stamped

	words  float64 // how many notices of gateways may be posted now
	unsaid int     // how many were not
}

// A cause is a reason for a plan.
type cause struct {
	replan Replan
	node   string
	text   string
}

// New makes the State of a leadership that begins.
func New(cfg Config) *Planner {
	cfg = cfg.WithDefaults()
	s := &Planner{
		cfg: cfg, health: newHealth(cfg), parts: make([]part, cfg.Partitions), balanced: true, tokens: float64(cfg.ResyncRate), words: gatewayNotices,
	}
	return s
}

// Step returns the leader's decision for a view at now, by a clock that counts suspension. Time
// between steps in which the leader did not look counts against no member.
func (s *Planner) Step(now time.Duration, view cluster.View) Decision {
	s.turn++
	elapsed := now - s.now
	blind := time.Duration(0)
	if s.turn > 1 && elapsed > 2*s.cfg.Beat {
		blind = elapsed - s.cfg.Beat
		for p := range s.parts {
			s.parts[p].since += blind
		}
	}
	s.now = now
	s.view = view
	s.d = Decision{Next: now + s.cfg.Beat}

	s.refill(elapsed)
	s.hear(s.health.Look(now, blind, view))
	if !s.cfg.Alone {
		s.observe()
	}
	s.hear(s.health.Judge())
	if !s.cfg.Alone {
		s.verify()
		s.plan(directivesOf(view))
	}
	s.resync(elapsed)

	s.at(s.health.Next())
	d := s.d
	s.view = cluster.View{}
	s.d = Decision{}
	return d
}

// Members returns the status of the present members, by name.
func (s *Planner) Members() []MemberStatus { return s.health.Statuses() }

// at asks to be called again at a moment that is yet to come.
func (s *Planner) at(moment time.Duration) {
	if moment > s.now {
		s.d.Next = min(s.d.Next, moment)
	}
}

func (s *Planner) tell(format string, args ...any) {
	s.d.News = append(s.d.News, fmt.Sprintf(format, args...))
}

// post posts a notice, and keeps it for gateways that were not there.
func (s *Planner) post(n notice.Notice) {
	s.d.Notices = append(s.d.Notices, n)
	s.recent = append(s.recent, stamped{s.now, n})
	if over := len(s.recent) - maxRecent; over > 0 {
		s.recent = append(s.recent[:0], s.recent[over:]...)
	}
}

// because records the reason for a plan, and the member that caused it, if any.
func (s *Planner) because(replan Replan, node, did string) {
	s.causes = append(s.causes, cause{replan, node, strings.TrimSpace(node + " " + did)})
}

// some writes a number of things.
func some(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
