package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
)

// A Severity is how urgent a problem is.
type Severity string

// The severities.
const (
	Info     Severity = "info" // a node that starts or stops
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// urgency orders severities.
func (s Severity) urgency() int { return slices.Index([]Severity{Info, Warning, Critical}, s) }

// A Problem is one cause of trouble, with all that follows from it.
type Problem struct {
	Code fault.Code `json:"code"`
	// Subject names the faulty part: mongodb, sink/orders. A subject has at most one problem.
	Subject  string   `json:"subject"`
	Cause    string   `json:"cause"` // one sentence
	Severity Severity `json:"severity"`
	// Since is when it began, as far as is known.
	Since   time.Time `json:"since"`
	Affects Affects   `json:"affects"`
	Remedy  string    `json:"remedy"`
	// Runbook is the address of the page for operators.
	Runbook string `json:"runbook"`
	// Detail is the error of a dependency. It may name hosts: it is for operators only.
	Detail string `json:"detail,omitempty"`

	more    string    // a sentence that stays where the problem is part of another one
	rests   []string  // subjects whose problems explain this one
	makes   Status    // the resulting status of its node
	unready bool      // its node cannot serve
	ended   time.Time // since when only its consequences are left, zero while it lasts
}

// explains reports whether p explains q: q rests on it, and did not begin before it, nor after it
// had ended. So a problem that operators know does not disappear when something else fails as well.
// An expected one, as a start, may also be explained by a problem that began later.
//
// An outage of etcd explains that a sink is late only from its end on, when a node that was cut off
// gets its partitions again. One that is not cut off publishes without etcd.
func (p Problem) explains(q Problem) bool {
	if !slices.Contains(q.rests, p.Subject) {
		return false
	}
	if p.Subject == SubjectEtcd && q.Code == fault.SubscriberLate {
		return !q.leaves() && !p.ended.IsZero() && !q.Since.Before(p.ended.Add(-passing))
	}
	before := q.Severity != Info && q.Since.Before(p.Since.Add(-noticing))
	after := !p.ended.IsZero() && !q.Since.Before(p.ended.Add(passing)) // it may be noticed later
	return !before && !after
}

// leaves reports whether the position of a sink is about to leave the oplog, by the sink's own
// problem or, urgently, by one of its lateness.
func (p Problem) leaves() bool {
	return p.Code == fault.SubscriberHeadRoom || p.Code == fault.SubscriberLate && p.Severity == Critical
}

// Affects lists everything that a problem concerns.
type Affects struct {
	Nodes []string `json:"nodes"`
	// Partitions are those of the node that answers.
	Partitions  []int    `json:"partitions"`
	Subscribers []string `json:"subscribers"`
}

// with returns the union.
func (a Affects) with(b Affects) Affects {
	return Affects{union(a.Nodes, b.Nodes), union(a.Partitions, b.Partitions), union(a.Subscribers, b.Subscribers)}
}

// union returns the elements of a or b, sorted; never nil.
func union[T int | string](a, b []T) []T {
	all := append(append([]T{}, a...), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// Told returns the problem as a node reports it to others: short, for a heartbeat.
func (p Problem) Told() Problem {
	const most, nodes = 200, 16
	return Problem{
		Code: p.Code, Subject: shortened(p.Subject, most), Cause: shortened(p.Cause, most), Severity: p.Severity, Since: p.Since,
		Detail: shortened(p.Detail, most), Affects: Affects{Nodes: p.Affects.Nodes[:min(nodes, len(p.Affects.Nodes))]},
	}
}

// shortened cuts a text that is longer than that, between two characters.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// A Verdict is the conclusion from facts.
type Verdict struct {
	// Status is that of the node: unhealthy where it cannot do its own job, degraded where
	// something that it serves is late or at risk.
	Status Status `json:"status"`
	// Ready says that the node can serve clients.
	Ready bool `json:"ready"`
	// Problems are those of the cluster as far as the node knows, the most urgent first.
	Problems []Problem `json:"problems"`
	// Explained are the subjects whose problems are left out, because others explain them.
	Explained []string `json:"-"`
}

// OfClients reports whether clients alone have the problem, and may choose when it begins.
func (p Problem) OfClients() bool { return p.Subject == subjectClients || p.Subject == subjectOplog }

// Public returns the verdict for those who need not show who they are: without what dependencies
// said, and without the names of clients.
func (v Verdict) Public() Verdict {
	v.Problems = slices.Clone(v.Problems)
	for i, p := range v.Problems {
		v.Problems[i].Detail = ""
		if p.OfClients() {
			v.Problems[i].Affects.Subscribers = []string{}
		}
	}
	return v
}

// Judge derives the problems. It is the only place that does: every display of the state of a node
// or its cluster shows a Verdict.
//
// A problem that another one explains is left out: the other one takes over its Affects and its
// severity. Those that are left are joined by their subjects.
func Judge(f Facts) Verdict {
	own := problems(&f)
	v := Verdict{Status: Healthy, Ready: true}
	for _, p := range own {
		v.Status = worse(v.Status, p.makes)
		v.Ready = v.Ready && !p.unready
	}
	all := own
	if f.Etcd.At.IsZero() && f.Detached.At.IsZero() { // otherwise the reports of others are old
		for _, p := range f.Others {
			if p.OfNodes() && f.Node != "" { // the node knows better
				continue
			}
			p.rests = restsOf(p.Subject, p.Code)
			all = append(all, p)
		}
	}
	v.Problems, v.Explained = explain(all)
	for i := range v.Problems {
		v.Problems[i].explainTo()
	}
	slices.SortFunc(v.Problems, func(a, b Problem) int {
		if a.Severity != b.Severity {
			return b.Severity.urgency() - a.Severity.urgency()
		}
		return strings.Compare(a.Subject, b.Subject)
	})
	return v
}

// OfNodes reports whether the problem is that nodes are missing. Each node sees that by itself, so
// another one's report of it is only for those who read the shared state without being a node.
func (p Problem) OfNodes() bool { return p.Subject == subjectNodes }

// Reported returns the problems that the node reports to others in its heartbeats, at most n.
func Reported(f Facts, most int) (told []Problem) {
	causes, _ := explain(problems(&f))
	for _, p := range causes {
		if p.Severity != Info && p.Subject != subjectLeader && len(told) < most {
			told = append(told, p.Told())
		}
	}
	return told
}

// worse returns the worse of two states of a node.
func worse(a, b Status) Status {
	order := []Status{Healthy, Degraded, Unhealthy}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

// take makes p the problem of everything that q affects. Consequences of a stop are as expected as
// the stop.
func (p *Problem) take(q Problem) {
	p.Affects = p.Affects.with(q.Affects)
	if p.Severity != Info && q.Severity.urgency() > p.Severity.urgency() {
		p.Severity = q.Severity
	}
}

// swallow takes a consequence of p. How soon a position leaves the oplog stays said.
func (p *Problem) swallow(q Problem) {
	p.take(q)
	if q.leaves() && !strings.Contains(p.Cause, q.Cause) {
		p.Cause += " " + q.Cause + q.more
	}
}

// ordered are codes of one subject: one may cause those after it, unless they began before it.
func ordered() []fault.Code {
	return []fault.Code{
		fault.SinkHalted, fault.SinkTarget, fault.SinkWaiting, fault.LogStuck, fault.MongoMajority, fault.LogHistoryLost, fault.LogLate, fault.SubscriberLate, fault.SubscriberHeadRoom,
	}
}

// merge joins the problems of each subject. One that began with another, which may be its cause, or
// which is the same at another node, is part of that one. Otherwise both hold, and the cause names
// both: the most urgent first, and of the others since when.
func merge(all []Problem) (merged []Problem) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Problem) int { return slices.Index(ordered(), a.Code) - slices.Index(ordered(), b.Code) })
	var apart []Problem // each has a beginning of its own
	for _, p := range all {
		i := slices.IndexFunc(apart, func(m Problem) bool { return m.Subject == p.Subject && (m.Code == p.Code || p.follows(m)) })
		if i < 0 {
			p.Affects = p.Affects.with(Affects{})
			apart = append(apart, p)
			continue
		}
		m := &apart[i]
		m.take(p)
		m.more = cmp.Or(m.more, p.more)
		if p.Since.Before(m.Since) {
			m.Since = p.Since
		}
	}
	slices.SortStableFunc(apart, func(a, b Problem) int { return b.Severity.urgency() - a.Severity.urgency() })
	merged = []Problem{}
	for _, p := range apart {
		said := p.Cause
		p.Cause = said + p.more
		p.more = ""
		i := slices.IndexFunc(merged, func(m Problem) bool { return m.Subject == p.Subject })
		if i < 0 {
			merged = append(merged, p)
			continue
		}
		m := &merged[i]
		m.take(p)
		if said = strings.TrimSuffix(said, "."); !strings.Contains(m.Cause, said) {
			m.Cause += fmt.Sprintf(" %s, since %s.", said, p.Since.UTC().Format("2006-01-02 15:04:05 UTC")) + strings.TrimPrefix(p.Cause, said+".")
		}
	}
	return merged
}

// follows reports whether p may be a consequence of another problem of its subject.
func (p Problem) follows(m Problem) bool {
	return slices.Contains(ordered(), p.Code) && !p.Since.Before(m.Since.Add(-noticing))
}

// explain removes the problems that others explain, and returns the subjects that have none left.
// It joins problems only afterwards: one of a subject may have a cause, and another one none,
// because it began earlier.
func explain(all []Problem) (causes []Problem, explained []string) {
	var root func(i int) int
	root = func(i int) int {
		for _, subject := range all[i].rests {
			for j := range all {
				if all[j].Subject == subject && all[j].explains(all[i]) {
					return root(j)
				}
			}
		}
		return i
	}
	roots := make([]int, len(all))
	for i := range all {
		if roots[i] = root(i); roots[i] == i {
			causes = append(causes, all[i])
		}
	}
	causes = merge(causes)
	of := func(subject string) int {
		return slices.IndexFunc(causes, func(p Problem) bool { return p.Subject == subject })
	}
	for i, r := range roots {
		if r == i {
			continue
		}
		causes[of(all[r].Subject)].swallow(all[i])
		if of(all[i].Subject) < 0 && !slices.Contains(explained, all[i].Subject) {
			explained = append(explained, all[i].Subject)
		}
	}
	return causes, explained
}

// runbooks is where the pages for operators are.
const runbooks = "https://github.com/mongostream/streamer/blob/main/docs/"

// explainTo adds what to do.
func (p *Problem) explainTo() {
	entry, _ := fault.Lookup(p.Code)
	p.Remedy = entry.Remedy
	p.Runbook = p.Code.URL()
	if page := p.page(); page != "" {
		p.Runbook = runbooks + "runbooks/" + page + ".md"
	}
}
