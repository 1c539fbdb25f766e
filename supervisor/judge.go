package supervisor

import (
	"cmp"
	"slices"
	"time"

	"github.com/mongostream/streamer/fault"
)

// A Cause says why a component missed a heartbeat.
type Cause string

// The causes; none is the empty one.
const (
	timedOut     Cause = "timeout"
	unreachable  Cause = "unreachable"
	badStatus    Cause = "bad_status"
	badBody      Cause = "bad_body"
	otherProcess Cause = "other_process" // another process answers at the address
	Stalled      Cause = "stalled"       // it answers, and makes no progress
	gone         Cause = "gone"          // its node has left the cluster without a word
)

// A target is a supervised component.
type target struct {
	// Slug is unique in the cluster: NODE/COMPONENT.
	Slug            string
	Node, Component string
	Process         string
	// URL is its endpoint, empty where there is none to ask.
	URL string
}

// A check is an observation of a component.
type check struct {
	target

	Miss   Cause
	Detail string
	// Lane says that it can be restarted within its process. Silent says that nothing of its
	// process answered.
	Lane, Silent bool
}

// An Action is the reaction to a failing component.
type Action string

// The actions.
const (
	actionNone       Action = "none" // yet
	ActionRestarted  Action = "restarted"
	actionExhausted  Action = "budget_exhausted"
	actionPaused     Action = "paused"
	actionOff        Action = "auto_restart_off"
	actionDamped     Action = "damped"
	actionSplit      Action = "half_unreachable"
	actionUnknown    Action = "budget_unknown" // the store does not answer
	actionImpossible Action = "not_restartable"
)

// A Finding is a component that is not well.
type Finding struct {
	Slug    string `json:"slug"`
	Misses  int    `json:"miss_count"`
	Action  Action `json:"action"`
	Cause   Cause  `json:"cause"`
	Detail  string `json:"detail,omitempty"`
	Process string `json:"process,omitempty"`
	// LastSeen is when it was last well, in milliseconds since 1970 by the clock of the node that
	// sweeps; 0 if that has not seen it.
	LastSeen int64 `json:"last_seen_ms,omitempty"`
}

// An Event is something that happened in a sweep.
type Event struct {
	Code  fault.Code `json:"code"`
	Slug  string     `json:"slug,omitempty"`
	Node  string     `json:"node,omitempty"`
	Slugs []string   `json:"slugs,omitempty"`

	// Of the component, for notices.
	finding Finding
	level   Level
}

// A Level is how much is restarted.
type Level string

// The levels.
const (
	Lane Level = "lane" // of work, within the process
	Node Level = "node" // the process
)

// An Order restarts something of a process.
type Order struct {
	Node    string    `json:"node"`
	Process string    `json:"process"`
	Slug    string    `json:"slug"`      // the component that failed
	What    string    `json:"component"` // its name within its process
	Level   Level     `json:"level"`
	Cause   Cause     `json:"cause"`
	By      string    `json:"by"`
	Sweep   uint64    `json:"sweep"`
	At      time.Time `json:"at"` // by the clock of who gave it; informative
}

// An input is the basis of a decision.
type input struct {
	Now    time.Time
	Checks []check
	// Nodes is how many nodes were asked.
	Nodes int
	// Known says that Used, the restarts of the window by slug, and Paused could be read.
	Known    bool
	Used     map[string]int
	Paused   map[string]bool
	Settings Settings
	Budget   int
	// Keep is for how many sweeps a component is remembered that is not among the checks and was
	// paged or restarted: its node starts again.
	Keep int
}

// A verdict is the decision of a judge.
type verdict struct {
	Healthy, Missed int
	Findings        []Finding
	Events          []Event
	Orders          []Order
	// Charges are the slugs whose budget the orders take from, each once.
	Charges []string
}

// A state is the memory of a judge about a component.
type state struct {
	process  string
	misses   int
	attempts int // restarts since it was last well
	next     int // the miss at which the next one is due; 0 before the first
	down     bool
	spent    bool // a notice said that its budget is used up
	held     bool // a notice said that its restarts are paused
	absent   int  // sweeps since it was checked
	seen     time.Time
}

// A judge counts misses and decides. It is used by one goroutine. Its zero value knows nothing.
type judge struct {
	states  map[string]*state
	pending map[string]string // processes of nodes that were ordered to restart, by node
	waited  map[string]int    // sweeps since
	cascade bool              // a notice said so
}

// processSlug is what restarts of a whole process are charged to.
func processSlug(node string) string { return node + "/process" }

// Step judges one sweep.
func (j *judge) Step(in input) (v verdict) {
	if j.states == nil {
		j.states, j.pending, j.waited = make(map[string]*state), make(map[string]string), make(map[string]int)
	}
	checks := slices.Clone(in.Checks)
	slices.SortFunc(checks, func(a, b check) int { return cmp.Compare(a.Slug, b.Slug) })
	j.settle(checks, in.Settings.Misses)
	d := decision{judge: j, in: in, silent: silentNodes(checks), charged: make(map[string]int), ordered: make(map[string]bool)}
	d.split = len(d.silent) > 0 && 2*len(d.silent) >= in.Nodes
	current := make(map[string]*state, len(checks))
	var wanting []want
	for _, c := range checks {
		s := j.states[c.Slug]
		if s == nil {
			s = &state{process: c.Process}
		}
		current[c.Slug] = s
		s.absent = 0
		if s.process != c.Process { // a new process starts from zero
			s.process = c.Process
			s.misses = 0
			s.next = 0
		}
		if c.Miss == "" {
			v.Healthy++
			if s.misses > 0 || s.down || s.attempts > 0 {
				v.Events = append(v.Events, Event{Code: fault.SupervisorRecovered, Slug: c.Slug, Node: c.Node, finding: Finding{Misses: s.misses, Action: s.told()}})
			}
			*s = state{process: c.Process, seen: in.Now}
			continue
		}
		s.misses++
		v.Missed++
		wanting = append(wanting, want{check: c, state: s, level: d.wants(c, s)})
	}
	j.replace(current, in.Keep)
	d.measure(wanting)
	for _, w := range wanting {
		f := Finding{Slug: w.check.Slug, Misses: w.state.misses, Cause: w.check.Miss, Detail: w.check.Detail, Process: w.check.Process, Action: actionNone}
		if !w.state.seen.IsZero() {
			f.LastSeen = w.state.seen.UnixMilli()
		}
		f.Action = d.decide(w, f, &v)
		if w.state.misses >= in.Settings.Misses && !w.state.down {
			w.state.down = true
			v.Events = append(v.Events, Event{Code: fault.SupervisorDown, Slug: f.Slug, Node: w.check.Node, finding: f})
		}
		v.Findings = append(v.Findings, f)
	}
	if len(d.damped) > 0 && !j.cascade {
		v.Events = append(v.Events, Event{Code: fault.SupervisorCascade, Slugs: d.damped})
	}
	j.cascade = len(d.damped) > 0
	return v
}

// replace replaces the states with the current ones. A component that was not checked keeps its
// state for so many sweeps, if a notice has reported its failure.
func (j *judge) replace(current map[string]*state, keep int) {
	for slug, s := range j.states {
		if current[slug] != nil || s.told() == actionNone {
			continue
		}
		if s.absent++; s.absent <= keep {
			current[slug] = s
		}
	}
	j.states = current
}

// told returns the action whose end the notice about a recovery reports, none if no notice reported
// the failure.
func (s *state) told() Action {
	if s.down || s.attempts > 0 {
		return ActionRestarted
	}
	return actionNone
}

// settle forgets the nodes that have come back, or were waited for long enough.
func (j *judge) settle(checks []check, misses int) {
	now := make(map[string]string)
	for _, c := range checks {
		now[c.Node] = c.Process
	}
	for node, process := range j.pending {
		j.waited[node]++
		if p, there := now[node]; there && p != process || j.waited[node] > 2*misses {
			delete(j.pending, node)
			delete(j.waited, node)
		}
	}
}

// silentNodes returns the nodes without any answer.
func silentNodes(checks []check) map[string]bool {
	silent := make(map[string]bool)
	for _, c := range checks {
		if c.URL == "" {
			continue
		}
		if was, seen := silent[c.Node]; !seen || was {
			silent[c.Node] = c.Silent
		}
	}
	for node, is := range silent {
		if !is {
			delete(silent, node)
		}
	}
	return silent
}

// A want is a component that missed its heartbeat, and what should be restarted, if anything.
type want struct {
	check check
	state *state
	level Level
}

// A decision is the working state of a Step.
type decision struct {
	*judge

	in       input
	silent   map[string]bool
	split    bool
	cascades bool // more nodes need a restart than can have failed by themselves
	lanes    int  // that were restarted
	charged  map[string]int
	ordered  map[string]bool // nodes
	damped   []string
}

// wants returns what should be restarted now.
func (d *decision) wants(c check, s *state) Level {
	lane := c.Lane && c.Miss == Stalled && s.attempts == 0
	due := s.next
	if due == 0 {
		due = d.in.Settings.Misses
		if lane {
			due = min(due, laneMisses)
		}
	}
	switch {
	case s.misses < due:
		return ""
	case lane:
		return Lane
	}
	return Node
}

// laneMisses is after how many misses a lane is restarted: one may be the moment after a process
// was suspended.
const laneMisses = 2

// measure counts the components that need a restart.
func (d *decision) measure(all []want) {
	nodes := make(map[string]bool)
	for _, w := range all {
		if w.level == Node && w.check.URL != "" {
			nodes[w.check.Node] = true
		}
	}
	d.cascades = len(nodes) > 1 && 2*len(nodes) > d.in.Nodes
}

// atOnce returns how many of n may be restarted in a sweep, because their orders are one
// transaction.
func atOnce(n, share, least int) int { return min(max(least, n/share), mostAtOnce) }

const mostAtOnce = 16

// decide decides about one component, and gives the order.
func (d *decision) decide(w want, f Finding, v *verdict) Action {
	c, s := w.check, w.state
	if w.level == "" {
		return actionNone
	}
	isDamped := d.cascades || d.pending[c.Node] == c.Process || len(d.pending) >= atOnce(d.in.Nodes, 4, 1)
	switch {
	case c.URL == "":
		return actionImpossible
	case !d.in.Settings.AutoRestart:
		return actionOff
	case d.in.Paused[c.Slug] || d.in.Paused[c.Node]:
		if !s.held {
			s.held = true
			v.Events = append(v.Events, Event{Code: fault.SupervisorPaused, Slug: c.Slug, Node: c.Node, finding: f})
		}
		return actionPaused
	case d.split && d.silent[c.Node]:
		return d.damp(c, actionSplit)
	case !d.in.Known:
		return actionUnknown
	case w.level == Node && d.ordered[c.Node]: // together with another component of the process
		s.attempts++
		s.next = s.misses + d.in.Settings.Misses
		return ActionRestarted
	case d.used(c.Slug) >= d.in.Budget || w.level == Node && d.used(processSlug(c.Node)) >= d.in.Budget:
		if !s.spent {
			s.spent = true
			v.Events = append(v.Events, Event{Code: fault.SupervisorBudget, Slug: c.Slug, Node: c.Node, finding: f})
		}
		return actionExhausted
	case w.level == Node && isDamped:
		return d.damp(c, actionDamped)
	case w.level == Lane && d.lanes >= atOnce(d.in.Nodes, 2, 2):
		return d.damp(c, actionDamped)
	}
	s.attempts++
	s.next = s.misses + d.in.Settings.Misses
	s.spent = false
	s.held = false
	v.Orders = append(v.Orders, Order{Node: c.Node, Process: c.Process, Slug: c.Slug, What: c.Component, Level: w.level, Cause: c.Miss, At: d.in.Now})
	v.Events = append(v.Events, Event{Code: fault.SupervisorRestarted, Slug: c.Slug, Node: c.Node, finding: f, level: w.level})
	d.charge(v, c.Slug)
	if w.level == Node {
		d.ordered[c.Node] = true
		d.pending[c.Node] = c.Process
		d.waited[c.Node] = 0
		d.charge(v, processSlug(c.Node))
	} else {
		d.lanes++
	}
	return ActionRestarted
}

func (d *decision) damp(c check, a Action) Action {
	d.damped = append(d.damped, c.Slug)
	return a
}

func (d *decision) used(slug string) int { return d.in.Used[slug] + d.charged[slug] }

func (d *decision) charge(v *verdict, slug string) {
	d.charged[slug]++
	v.Charges = append(v.Charges, slug)
}

// Revoke takes orders back that were not given: they are due again with the next miss.
func (j *judge) Revoke(orders []Order) {
	for _, o := range orders {
		if s := j.states[o.Slug]; s != nil {
			s.attempts = max(s.attempts-1, 0)
			s.next = s.misses + 1
		}
		if o.Level == Node {
			delete(j.pending, o.Node)
			delete(j.waited, o.Node)
		}
	}
}
