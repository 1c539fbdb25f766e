package wiring

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
)

// A teller posts a notice when a problem begins, when it becomes critical, and when it is over. It
// reads the cluster's notices to learn which problems any node has reported already: one problem is
// one notice, and a new leader continues where the last one stopped.
type teller struct {
	last uint64               // the last notice that was read
	open map[string]opened    // by subject
	told map[string]time.Time // when clients' problems were reported, by subject
	gone map[string]time.Time // when an open problem disappeared
	lost map[string]time.Time // when the last loss of a subscriber was reported; that of all under ""
}

// An opened is a reported problem.
type opened struct {
	code     fault.Code
	at       time.Time
	critical bool
}

// says reports whether the problem has been reported as it is now, or as more urgent.
func (o opened) says(p health.Problem) bool {
	return o.code == p.Code && (o.critical || p.Severity != health.Critical)
}

// overAfter is how long a problem must be gone before its end is reported.
const overAfter = 2 * time.Second

// clientsEvery is the least time between two reports of a client's problem: clients can begin and
// end problems at will, and every notice displaces an earlier one from the history.
const clientsEvery = time.Hour

// step reports changes. A node that is cut off reports its own problems to its readers, and never
// their end, because it does not see the other nodes.
func (t *teller) step(now time.Time, v health.Verdict, board *notice.Board, leads, cutOff bool) {
	t.read(board)
	present := make(map[string]bool, len(v.Problems))
	for _, p := range v.Problems {
		present[p.Subject] = true
		delete(t.gone, p.Subject)
		isTold := p.Severity != health.Info && (leads || cutOff)
		if !isTold || t.happened(p, now) || detachedJustNow(p, now) {
			continue
		}
		if o, told := t.open[p.Subject]; told && o.says(p) {
			continue
		}
		if at, told := t.told[p.Subject]; p.OfClients() && told && now.Sub(at) < clientsEvery {
			continue
		}
		board.Post(begun(p))
	}
	for _, subject := range v.Explained { // it is not over
		present[subject] = true
		delete(t.gone, subject)
	}
	if !leads || cutOff {
		return
	}
	for _, subject := range slices.Sorted(maps.Keys(t.open)) {
		switch at, noted := t.gone[subject]; {
		case present[subject]:
		case !noted:
			t.gone[subject] = now
		case now.Sub(at) >= overAfter:
			o := t.open[subject]
			lasted := now.Sub(o.at).Truncate(time.Second)
			board.Post(notice.Notice{
				Channel: notice.Health, Kind: notice.KindProblemOver, Level: notice.Info, Text: fmt.Sprintf("%s is over after %s: %s", o.code, lasted, subject),
				Fields: map[string]any{"subject": subject, "code": string(o.code), "lasted_seconds": int(lasted.Seconds())},
			})
		}
	}
}

// happened reports whether the problem is that a loss is not acknowledged yet and the loss itself
// is reported, or may be in a moment: by another node, whose notices come a little later.
func (t *teller) happened(p health.Problem, now time.Time) bool {
	if p.Code != fault.LogHistoryLost || p.OfClients() {
		return false
	}
	for _, of := range []string{p.Subject, ""} {
		if at, told := t.lost[of]; told && at.After(p.Since.Add(-lossNoticed)) {
			return true
		}
	}
	return now.Sub(p.Since) < overAfter
}

// detachedToldAfter is how long a suspended node may take to rejoin before that is reported. Where
// others miss its heartbeats, they report it; where they do not, only the log has it.
const detachedToldAfter = 3 * time.Second

// detachedJustNow reports whether the problem is that the node was detached a moment ago. It is not
// told yet: while etcd does not answer, that is the problem, and otherwise the node is soon back.
func detachedJustNow(p health.Problem, now time.Time) bool {
	return p.Code == fault.NodeDetached && now.Sub(p.Since) < detachedToldAfter
}

// lossNoticed is how long before its problem a loss may have been told.
const lossNoticed = 10 * time.Second

// read reads the notices since the last step.
func (t *teller) read(board *notice.Board) {
	if t.open == nil {
		t.open, t.gone, t.told, t.lost = make(map[string]opened), make(map[string]time.Time), make(map[string]time.Time), make(map[string]time.Time)
	}
	posted, _ := board.Since(t.last)
	for _, n := range posted {
		t.last = n.ID
		subject, _ := n.Fields["subject"].(string)
		switch n.Kind {
		case notice.KindProblem:
			code, _ := n.Fields["code"].(string)
			t.open[subject] = opened{fault.Code(code), n.At, n.Level == notice.Critical}
			t.told[subject] = n.At
		case notice.KindProblemOver:
			delete(t.open, subject)
			delete(t.gone, subject)
		case notice.KindResync:
			if n.Level == notice.Critical {
				t.lost[""] = n.At
			}
		case notice.KindSubscriberLoss:
			subscriber, _ := n.Fields["subscriber"].(string)
			t.lost[subscriber] = n.At
		}
	}
}

// begun returns the notice of a problem.
func begun(p health.Problem) notice.Notice {
	level := notice.Warning
	if p.Severity == health.Critical {
		level = notice.Critical
	}
	text := p.Cause
	if p.Detail != "" {
		text = fmt.Sprintf("%s (%s)", strings.TrimSuffix(p.Cause, "."), p.Detail)
	}
	return notice.Notice{
		Channel: notice.Health, Kind: notice.KindProblem, Level: level, Text: text,
		Fields: map[string]any{
			"subject": p.Subject, "code": string(p.Code), "since": p.Since.UTC().Format(time.RFC3339), "nodes": p.Affects.Nodes,
			"partitions": len(p.Affects.Partitions), "subscribers": len(p.Affects.Subscribers), "runbook": p.Runbook,
		},
	}
}

// problemMetric is collected from the verdict, so that it shows what everything else shows.
type problemMetric func() health.Verdict

//nolint:gochecknoglobals // a constant
var problemDesc = prometheus.NewDesc("streamer_problem", "1 for each problem that the node knows of, its own and those that others report.",
	[]string{"code", "subject", "severity"}, nil)

// Describe implements prometheus.Collector.
func (problemMetric) Describe(ch chan<- *prometheus.Desc) { ch <- problemDesc }

// Collect implements prometheus.Collector.
func (judge problemMetric) Collect(ch chan<- prometheus.Metric) {
	for _, p := range judge().Problems {
		ch <- prometheus.MustNewConstMetric(problemDesc, prometheus.GaugeValue, 1, string(p.Code), strings.ToValidUTF8(p.Subject, "?"), string(p.Severity))
	}
}
