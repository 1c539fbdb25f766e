package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
)

// The subjects of problems, in addition to the names of subscribers and components.
const (
	subjectStart      = "start"
	subjectStop       = "stop"
	SubjectMongoDB    = "mongodb"
	subjectReading    = "reading"
	SubjectEtcd       = "etcd"
	subjectMembership = "membership"
	subjectLeader     = "leader"
	subjectNodes      = "nodes"
	subjectPartitions = "partitions"
	subjectSettings   = "settings"
	subjectMembers    = "members"
	subjectComponents = "components"
	subjectSweeps     = "sweeps"
	subjectSaving     = "checkpoints"
	subjectClients    = "clients"
	subjectOplog      = "oplog"
	componentPrefix   = "component/"
)

// A kind has the properties of a subject's problems.
type kind struct {
	subject string
	rests   []string // subjects whose problems explain this one, the first cause first
	runbook string   // the name of its page
}

// kinds are those of all subjects. A subject rests on those that are listed before it only.
func kinds() []kind {
	return []kind{
		{subjectStop, nil, ""},
		{SubjectMongoDB, nil, "StreamerPartitionStuck"},
		{SubjectEtcd, nil, "StreamerDetached"},
		{subjectReading, []string{SubjectMongoDB}, "StreamerPartitionStuck"},
		{subjectMembership, []string{SubjectEtcd, subjectStop}, "StreamerDetached"},
		{subjectStart, []string{SubjectMongoDB, SubjectEtcd, subjectMembership}, ""},
		{subjectLeader, []string{SubjectEtcd, subjectMembership}, "StreamerNoLeader"},
		{subjectNodes, []string{SubjectEtcd, subjectMembership}, "StreamerMemberDead"},
		{subjectSettings, []string{SubjectEtcd, subjectMembership}, "StreamerSettings"},
		{subjectMembers, []string{SubjectEtcd, subjectMembership}, "StreamerSettings"},
		{subjectPartitions, []string{SubjectEtcd, subjectMembership, subjectStop, subjectLeader, subjectNodes}, "StreamerPartitionsUnserved"},
		{subjectSaving, nil, "StreamerCheckpointsFailing"}, // and on its store
		{"retention", nil, "StreamerSettings"},
		{"certificates", nil, "StreamerSettings"},
		{"identities", nil, "StreamerSettings"},
		{"log", nil, "StreamerSettings"},
		{"sink/", []string{SubjectMongoDB, SubjectEtcd, subjectReading}, "StreamerSinkLate"},
		{"stdout", []string{SubjectMongoDB, SubjectEtcd, subjectReading}, "StreamerSinkLate"},
		{subjectClients, nil, "StreamerSubscriberLagging"},
		{subjectOplog, nil, "StreamerHeadRoomLow"},
		{subjectSweeps, []string{SubjectEtcd, subjectMembership, subjectLeader, subjectNodes}, "SupervisorSweepMissing"},
		{subjectComponents, []string{SubjectEtcd, subjectMembership, subjectNodes}, "SupervisorComponentDown"},
		{componentPrefix + "tail", []string{SubjectMongoDB, subjectReading}, "SupervisorComponentDown"},
		{componentPrefix + "snapshots", []string{SubjectMongoDB}, "SupervisorComponentDown"},
		{componentPrefix + "lease", []string{SubjectEtcd, subjectMembership}, "SupervisorComponentDown"},
		{componentPrefix + "leader", []string{SubjectEtcd, subjectMembership}, "SupervisorComponentDown"},
		{componentPrefix + "notices", []string{SubjectEtcd}, "SupervisorComponentDown"},
		{componentPrefix + "supervisor", []string{SubjectEtcd}, "SupervisorComponentDown"},
		{componentPrefix + "checkpoints", []string{SubjectEtcd, SubjectMongoDB, subjectSaving}, "SupervisorComponentDown"},
		{componentPrefix, nil, "SupervisorComponentDown"},
	}
}

// kindOf returns the kind of a subject. A kind that ends with a slash is that of all subjects that
// begin with it.
func kindOf(subject string) kind {
	for _, k := range kinds() {
		if k.subject == subject || strings.HasSuffix(k.subject, "/") && strings.HasPrefix(subject, k.subject) {
			return k
		}
	}
	return kind{}
}

// restsOf returns the subjects whose problems explain one of this subject and code. A problem of
// reading explains that a sink is late, or near the end of the oplog, not that it has stopped; one
// of etcd explains only that it is late.
func restsOf(subject string, code fault.Code) []string {
	kind := kindOf(subject)
	rests := kind.rests
	if kind.runbook == "StreamerSinkLate" {
		isRead := slices.Contains([]fault.Code{fault.SinkTarget, fault.SubscriberLate, fault.SubscriberHeadRoom}, code)
		rests = slices.DeleteFunc(slices.Clone(rests), func(s string) bool {
			return s == SubjectEtcd && code != fault.SubscriberLate || s == subjectReading && !isRead
		})
	}
	if slug, is := strings.CutPrefix(subject, componentPrefix+"sink-"); is {
		rests = append(slices.Clone(rests), "sink/"+slug)
	}
	return rests
}

// page returns the name of the problem's page for operators, which is that of the alert that it
// raises; empty for none.
func (p Problem) page() string {
	kind := kindOf(p.Subject)
	switch {
	case p.Code == fault.MongoMajority:
		return "StreamerNoMajority"
	case p.Code == fault.LogLate && p.Severity != Critical:
		return "StreamerLagging"
	case kind.runbook == "StreamerSinkLate" && p.Severity == Critical:
		return "StreamerSinkDown"
	case p.Code == fault.SubscriberHeadRoom:
		return "StreamerHeadRoomLow"
	}
	return kind.runbook
}

// A rule makes a problem of a fact.
type rule struct {
	fact     Since
	subject  string
	code     fault.Code // where the error has none
	cause    string
	severity Severity
	makes    Status
	unready  bool
	patience time.Duration // how long the fact must have lasted
}

const (
	// passing is how long a dependency may not answer before that is a problem.
	passing = 3 * time.Second
	// reopening is how long a change stream may take to reopen, and checkpoints may fail. It is
	// longer, because that happens before MongoDB or etcd is known to be unreachable.
	reopening = passing + time.Second
	// moving is how long partitions may be between two owners.
	moving = 5 * time.Second
	// retaining is how long the store of the retained log may fail.
	retaining = 10 * time.Second
	// noticing is how much later than its consequences a cause may be noticed.
	noticing = 10 * time.Second
	// recovering is how long a node may take to get over the consequences of an outage of etcd.
	recovering = 10 * time.Second
	// electing is how long the election of a leader may take.
	electing = 5 * time.Second
)

// patienceWithEtcd is how long etcd may not answer before that is a problem.
func (f *Facts) patienceWithEtcd() time.Duration {
	if !f.Detached.At.IsZero() { // the lease was short: etcd is why
		return 0
	}
	return passing
}

// recovers reports whether etcd has only just answered again.
func (f *Facts) recovers() bool {
	return f.Etcd.At.IsZero() && !f.EtcdWas.At.IsZero() && f.Now.Sub(f.EtcdBack) < recovering
}

// rules are those of single facts.
func rules(f *Facts) []rule {
	etcd := f.patienceWithEtcd()
	// A node without etcd serves every client on: it stays ready, although its partitions wait,
	// also while it claims them again.
	joined := f.Etcd.At.IsZero() && f.Detached.At.IsZero() && !f.recovers()
	return []rule{
		{f.Stopping, subjectStop, fault.NodeStopping, "The node stops: what was delivered is acknowledged and saved.", Info, Degraded, true, 0},
		{f.Starting, subjectStart, fault.NodeStarting, "The node starts and is not ready yet.", Info, Unhealthy, true, 0},
		{f.MongoDB, SubjectMongoDB, fault.MongoUnreachable, "", Critical, Unhealthy, true, passing},
		{f.Closed, subjectReading, fault.LogStuck, "The change stream is being opened again.", Critical, Unhealthy, true, reopening},
		{f.Silent, subjectReading, fault.LogStuck, "Nothing is read although the oplog advances.", Critical, Unhealthy, false, 0},
		{f.Majority, subjectReading, fault.MongoMajority, "MongoDB has no majority: nothing new can be read.", Critical, Degraded, false, 0},
		{f.Late, subjectReading, fault.LogLate, "The node reads the oplog late.", Warning, Degraded, false, 0},
		{f.Etcd, SubjectEtcd, fault.EtcdUnreachable, "etcd does not answer.", Critical, Degraded, false, etcd},
		{f.Alarm, SubjectEtcd, fault.EtcdAlarm, "etcd has raised an alarm.", Critical, Degraded, false, 0},
		{f.Unread, SubjectEtcd, fault.ClusterCorrupt, "The cluster's state cannot be read.", Critical, Degraded, false, 0},
		{f.Apart, subjectMembership, fault.NodeDetached, "The node cannot join its cluster again.", Critical, Unhealthy, true, 0},
		{f.Detached, subjectMembership, fault.NodeDetached, "The node is cut off from its cluster.", Critical, Unhealthy, false, 0},
		{f.Unled, subjectLeader, fault.ClusterLeaderless, "The cluster has no leader.", Critical, Healthy, false, electing},
		{f.Missing, subjectNodes, fault.NodeMissing, "Nodes are missing.", Critical, Healthy, false, 0},
		{f.Unserved, subjectPartitions, fault.ClusterUnowned, "The node does not serve all of its partitions.", Critical, Unhealthy, joined, moving},
		{f.Unowned, subjectPartitions, fault.ClusterUnowned, "Partitions have no owner.", Critical, Healthy, false, 2 * moving},
		{f.Differ, subjectSettings, fault.ClusterCoverage, "Nodes read or serve something else than this one.", Warning, Degraded, false, 0},
		{f.Refused, subjectMembers, fault.ClusterHeartbeat, "Nodes are given no partitions.", Warning, Healthy, false, 0},
		{f.Unanswered, subjectComponents, fault.SupervisorDown, "Components of other nodes do not answer.", Critical, Healthy, false, 0},
		{f.Unswept, subjectSweeps, fault.SupervisorMissing, "Nobody looks after the components.", Critical, Healthy, false, 0},
		{f.Unsaved, subjectSaving, fault.CheckpointUnsaved, "Checkpoints cannot be saved.", Critical, Degraded, false, reopening},
		{f.Retention, "retention", fault.RetentionStore, "The log is not retained beyond the oplog now.", Warning, Healthy, false, retaining},
		{f.Certificates, "certificates", fault.AccessBadCertificate, "A certificate's file cannot be used; the one from before is in force.", Warning, Degraded, false, 0},
		{f.Identities, "identities", fault.AccessBadFile, "A file of identities cannot be used; the one from before is in force.", Warning, Degraded, false, 0},
		{f.Log, "log", fault.NodeLog, "Nobody reads the log.", Warning, Degraded, false, 0},
	}
}

// problem returns the problem that the rule makes of its fact.
func (r rule) problem() Problem {
	code := codeOf(r.fact.Err, r.code)
	p := Problem{
		Code: code, Subject: r.subject, Cause: r.cause, Severity: r.severity, Since: r.fact.At, rests: restsOf(r.subject, code), makes: r.makes, unready: r.unready,
	}
	if r.fact.Err != nil {
		p.Detail = r.fact.Err.Error()
	}
	return p
}

// problems returns the problems of the node itself, and those of the cluster from its view.
func problems(f *Facts) (all []Problem) {
	var node []string // none where the cluster alone is judged
	if f.Node != "" {
		node = []string{f.Node}
	}
	for _, r := range rules(f) {
		if !r.fact.lasted(f.Now, r.patience) {
			continue
		}
		p := r.problem()
		p.Affects.Nodes = node
		switch r.subject {
		case SubjectMongoDB:
			entry, _ := fault.Lookup(p.Code)
			p.Cause = fmt.Sprintf("MongoDB cannot be read: %s.", entry.Summary)
			p.Affects.Partitions = ids(f.Partitions)
		case subjectReading:
			p.Affects.Partitions = ids(f.Partitions)
		case subjectNodes:
			p.Affects.Nodes = f.MissingNodes
			if len(f.MissingNodes) > 0 {
				p.Cause = "No heartbeat comes from " + strings.Join(f.MissingNodes, ", ") + "."
				p.Detail = ""
			}
		case subjectSaving:
			p.rests = []string{f.Store}
		}
		all = append(all, p)
	}
	all = append(all, ofShared(f)...)
	all = append(all, ofEtcd(f, all)...)
	all = append(all, ofClients(f)...)
	for _, v := range f.Stalled {
		all = append(all, Problem{
			Code: fault.SupervisorDown, Subject: componentPrefix + v.Slug, Cause: "The component " + v.Slug + " makes no progress.", Severity: Critical,
			Since: v.Since, Affects: Affects{Nodes: node}, rests: restsOf(componentPrefix+v.Slug, fault.SupervisorDown), makes: Degraded,
		})
	}
	return all
}

// ofEtcd returns the problem of etcd while the node recovers: etcd answers again, and what its
// outage caused is still there. So that does not become a problem of its own in between. It counts
// from its beginning, before it has lasted for as long as a problem does: otherwise the outage
// would be over, and be a problem again a little later.
func ofEtcd(f *Facts, others []Problem) []Problem {
	lasted := f.EtcdBack.Sub(f.EtcdWas.At)
	if !f.recovers() || lasted < f.patienceWithEtcd() || !f.Apart.At.IsZero() {
		return nil
	}
	outage := Problem{
		Code: codeOf(f.EtcdWas.Err, fault.EtcdUnreachable), Subject: SubjectEtcd, Cause: "etcd did not answer; the node is recovering.", Severity: Critical,
		Since: f.EtcdWas.At, Detail: text(f.EtcdWas.Err), Affects: Affects{Nodes: []string{f.Node}}, rests: restsOf(SubjectEtcd, ""), makes: Healthy, ended: f.EtcdBack,
	}
	begins := func(r rule) bool { return r.fact.lasted(f.Now, 0) && outage.explains(r.problem()) }
	if !slices.ContainsFunc(rules(f), begins) && !slices.ContainsFunc(others, outage.explains) {
		return nil
	}
	return []Problem{outage}
}

// ids returns the numbers of partitions.
func ids(partitions []Partition) (all []int) {
	for _, p := range partitions {
		all = append(all, p.ID)
	}
	return all
}

// ofShared returns the problems of sinks and standard output, each the subject of its own: why one
// has stopped or is late, and how long that can last. Each fact is a problem, the one that may
// cause the others first.
func ofShared(f *Facts) (all []Problem) {
	for _, s := range f.Subscribers {
		if !s.Shared {
			continue
		}
		affects := Affects{Nodes: []string{f.Node}, Subscribers: []string{s.Name}}
		for _, q := range f.Partitions {
			if q.Status != Healthy && q.Status != Idle {
				affects.Partitions = append(affects.Partitions, q.ID)
			}
		}
		name := "sink " + strings.TrimPrefix(s.Name, "sink/")
		label := "Sink" + strings.TrimPrefix(name, "sink")
		near := Warning
		if s.Urgent {
			near = Critical
		}
		add := func(fact Since, patience time.Duration, code fault.Code, severity Severity, cause string) {
			if fact.lasted(f.Now, patience) {
				all = append(all, Problem{
					Code: code, Subject: s.Name, Severity: severity, Since: fact.At, Cause: cause, Affects: affects, rests: restsOf(s.Name, code), makes: Degraded,
				})
			}
		}
		detailed := func(fact Since, patience time.Duration, code fault.Code, severity Severity, cause string) {
			before := len(all)
			add(fact, patience, codeOf(fact.Err, code), severity, cause)
			for i := range all[before:] {
				all[before+i].Detail = text(fact.Err)
			}
		}
		detailed(s.Failed, 0, fault.SinkHalted, Critical, label+" has stopped, whole or in part.")
		detailed(s.Unacknowledged, passing, fault.SinkTarget, Warning, "The target of "+name+" acknowledges nothing.")
		detailed(s.Waits, 0, fault.SinkWaiting, Warning, "What goes to a destination of "+name+" waits.")
		add(s.Lost, 0, fault.LogHistoryLost, Critical, label+" has yet to acknowledge a loss.")
		isLate := label + " is late."
		if s.Paused {
			isLate = label + " is paused, and late."
		}
		add(s.Late, 0, fault.SubscriberLate, Warning, isLate)
		add(s.Near, 0, fault.SubscriberHeadRoom, near, label+" is near the end of the oplog.")
		if s.Near.lasted(f.Now, 0) {
			all[len(all)-1].more = " Its position has left the oplog."
			if s.HeadRoom >= 0 {
				all[len(all)-1].more = fmt.Sprintf(" Its position leaves the oplog in %s.", s.HeadRoom.Truncate(time.Second))
			}
		}
	}
	return all
}

// ofClients returns the problems of the other subscribers, which are their own: together, and
// without an effect on the node.
func ofClients(f *Facts) (all []Problem) {
	add := func(subject string, code fault.Code, severity Severity, cause string, concern func(Subscriber) Since) {
		p := Problem{Code: code, Subject: subject, Severity: severity, Since: f.Now, Affects: Affects{Nodes: []string{f.Node}}, rests: restsOf(subject, code), makes: Healthy}
		for _, s := range f.Subscribers {
			since := concern(s)
			if s.Shared || !since.lasted(f.Now, 0) {
				continue
			}
			p.Affects.Subscribers = append(p.Affects.Subscribers, s.Name)
			if since.At.Before(p.Since) {
				p.Since = since.At
			}
		}
		if n := len(p.Affects.Subscribers); n > 0 {
			p.Cause = fmt.Sprintf("%s %s", counted(n, "client"), cause)
			all = append(all, p)
		}
	}
	add(subjectClients, fault.LogHistoryLost, Warning, "must acknowledge a loss.", func(s Subscriber) Since { return s.Lost })
	add(subjectClients, fault.SessionUnacknowledged, Warning, "acknowledged nothing of what was sent.", func(s Subscriber) Since { return s.Unacknowledged })
	// However near: clients must not be able to page operators.
	add(subjectOplog, fault.SubscriberHeadRoom, Warning, "will lose their positions to the end of the oplog.", func(s Subscriber) Since { return s.Near })
	return all
}

// counted returns a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// text returns the text of an error, empty for none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return cmp.Or(err.Error(), "unknown")
}
