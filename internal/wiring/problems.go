package wiring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/member"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/wake"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/streamer"
)

// judgeEvery is how often the node judges itself without a request.
const judgeEvery = 500 * time.Millisecond

// observed is the state between two checks.
type observed struct {
	begun atomic.Bool              // the node has been ready
	told  atomic.Pointer[reported] // what its heartbeats report
	away  atomic.Int64             // since when MongoDB cannot be read, in ns of the Unix clock; 0 while it can
	news  chan struct{}            // holds one signal: that has changed

	mu     sync.Mutex
	since  map[string]health.Since      // the facts that held at the last look, by name
	before map[string]health.Since      // and at the one before
	seen   map[string]health.Subscriber // at the last look, by name
	beats  map[string]heard             // of other nodes, by name
	looked time.Time                    // when the last look began, zero before the first
	// answered is when etcd gave the node its last view.
	answered time.Time
	// stood is when the node itself was frozen, unheard when it or etcd was: heartbeats come
	// through etcd.
	stood, unheard standstills
	etcd           health.Since // the last outage of etcd
	back           time.Time    // when it was over, zero while it is not
}

// reported is the part of the verdict in a node's heartbeats.
type reported struct {
	status   health.Status
	problems []health.Problem
	changes  uint64 // of the problems that others must know at once
}

// report takes the status and the problems into the node's heartbeats, and has one sent soon when
// others must know of a change. Problems that clients have at will are no news: each makes every
// node look at the cluster.
func (o *observed) report(status health.Status, problems []health.Problem) {
	before := o.told.Load()
	told := &reported{status: status, problems: problems}
	if before != nil {
		told.changes = before.changes
	}
	changed := !slices.Equal(before.urgent(), told.urgent())
	if changed {
		told.changes++
	}
	o.told.Store(told)
	if changed {
		wake.Notify(o.news)
	}
}

// urgent returns the problems that others must know at once. That nodes are missing each sees by
// itself.
func (r *reported) urgent() (all []string) {
	if r == nil {
		return nil
	}
	for _, p := range r.problems {
		if !p.OfClients() && !p.OfNodes() {
			all = append(all, fmt.Sprint(p.Subject, " ", p.Code, " ", p.Severity))
		}
	}
	return all
}

// heard is the last heartbeat of a node.
type heard struct {
	beat  int64
	at    time.Time
	stops bool      // it has said that it stops
	left  time.Time // when it was gone by itself, zero if it is not
}

// fact returns since when an error has been there. A time that is known counts; otherwise it is
// that of the first look. The caller holds the mutex.
func (o *observed) fact(name string, now, known time.Time, err error) health.Since {
	if err == nil {
		return health.Since{}
	}
	if known.IsZero() {
		known = now
		if last, there := o.before[name]; there {
			known = last.At
		}
	}
	o.since[name] = health.Since{At: known, Err: err}
	return o.without(o.since[name], now)
}

// setAway keeps since when MongoDB cannot be read, for those who say what was last known before. A
// passing failure is not that: partitions would be stuck without a problem.
func (o *observed) setAway(v health.Verdict) {
	var since int64
	for _, p := range v.Problems {
		if p.Subject == health.SubjectMongoDB {
			since = p.Since.UnixNano()
		}
	}
	o.away.Store(since)
}

// mongoDBAway returns since when MongoDB cannot be read, zero while it can.
func (o *observed) mongoDBAway() time.Time {
	if ns := o.away.Load(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

// without returns a fact with a beginning that is later by the time in which the node was frozen
// since: it could not learn meanwhile that the fact is over. The caller holds the mutex.
func (o *observed) without(s health.Since, now time.Time) health.Since {
	if !s.At.IsZero() {
		s.At = s.At.Add(o.stood.within(s.At, now))
	}
	return s
}

// still returns a fact as fact does. While it is unknown whether it holds, it is as it was at the
// last look. The caller holds the mutex.
func (o *observed) still(name string, now time.Time, known bool, err error) health.Since {
	if known {
		return o.fact(name, now, time.Time{}, err)
	}
	last, held := o.before[name]
	if held {
		o.since[name] = last
	}
	return o.without(last, now)
}

// look begins another look. One that comes late says that the node was frozen: its process was
// suspended, or got no time. The caller holds the mutex.
func (o *observed) look(now time.Time) {
	o.before = o.since
	o.since = make(map[string]health.Since)
	if late := now.Sub(o.looked); !o.looked.IsZero() && late > 2*judgeEvery {
		o.stood.note(o.looked.Add(judgeEvery), now)
		o.unheard.note(o.looked.Add(judgeEvery), now)
	}
	if now.After(o.looked) { // requests look, too, and may have waited for the mutex
		o.looked = now
	}
}

// heardThrough notes how old the node's view of the cluster is, which it asks of etcd regularly:
// while etcd keeps it waiting, no heartbeat of any node comes. The caller holds the mutex.
func (o *observed) heardThrough(age time.Duration, now time.Time) {
	answered := now.Add(-age)
	if due := o.answered.Add(member.AsksEvery + answersWithin); !o.answered.IsZero() {
		waited := now
		if answered.After(o.answered) {
			waited = answered
		}
		o.unheard.note(due, waited)
	}
	if answered.After(o.answered) {
		o.answered = answered
	}
}

// answersWithin is how long an answer of etcd may take without keeping anybody waiting.
const answersWithin = 250 * time.Millisecond

// unserved returns the fact that partitions are not served. A detached node serves none, and knows
// no plan that counts: the fact is as it was before. The caller holds the mutex.
func (o *observed) unserved(now time.Time, detached bool, err error) health.Since {
	return o.still("unserved", now, !detached, err)
}

// when returns an error if something holds.
func when(holds bool, text string) error {
	if !holds {
		return nil
	}
	return errors.New(text)
}

// Judge returns the present problems.
func (s *Service) Judge() health.Verdict { return health.Judge(s.facts(time.Now())) }

// reported returns the part of the verdict for the node's heartbeats, nothing before the first
// check. The changes are counted up to exactly these problems: others look at a change once.
func (s *Service) reported() (status health.Status, problems []health.Problem, changes uint64) {
	if told := s.observed.told.Load(); told != nil {
		return told.status, told.problems, told.changes
	}
	return "", nil, 0
}

// watchProblems checks the node, and reports its problems to operators, until the context ends.
func (s *Service) watchProblems(ctx context.Context) {
	s.observed.judge(ctx, s.board, s.facts, s.gateway.Serving, func(f health.Facts) bool {
		view, _ := s.member.View()
		return speaks(f, view, s.member.Leads())
	})
}

// judge judges the facts again and again until the context ends. It passes on whether the node is
// ready, and posts the problems while the node speaks for the cluster, and while it is cut off.
func (o *observed) judge(ctx context.Context, board *notice.Board, facts func(time.Time) health.Facts, ready func(bool), speaks func(health.Facts) bool) {
	tick := time.NewTicker(judgeEvery)
	defer tick.Stop()
	var teller teller
	for {
		now := time.Now()
		f := facts(now)
		v := health.Judge(f)
		o.setAway(v)
		status := v.Status
		if !f.Starting.At.IsZero() { // unhealthy for itself, and not for those who look at the cluster
			status = health.Status(cluster.StatusStarting)
		}
		o.report(status, health.Reported(f, cluster.MaxProblems))
		ready(v.Ready)
		if o.begun.Load() {
			cutOff := !f.Etcd.At.IsZero() || !f.Detached.At.IsZero()
			teller.step(now, v, board, speaks(f), cutOff)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// speaks reports whether the node posts the cluster's problems: the leader does, and while there is
// none or it is missing, the first of the nodes that are there.
func speaks(f health.Facts, view cluster.View, leads bool) bool {
	if leads || view.Leader != "" && !slices.Contains(f.MissingNodes, view.Leader) {
		return leads
	}
	for _, m := range view.Members { // in the order of their names
		if m.Kind != cluster.KindGateway && !slices.Contains(f.MissingNodes, m.Node) {
			return m.Node == f.Node
		}
	}
	return false
}

// facts collects the node's facts.
func (s *Service) facts(now time.Time) health.Facts {
	cfg := s.opts.Config
	o := &s.observed
	f := health.Facts{Now: now, Node: cfg.Node.ID, Store: health.SubjectEtcd}
	if cfg.Reliability.Checkpoint.Backend == config.BackendMongo {
		f.Store = health.SubjectMongoDB
	}
	reading := s.node.Reading()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.look(now)
	fact := func(name string, err error) health.Since { return o.fact(name, now, time.Time{}, err) }
	f.Subscribers = s.observedSubscribers(now)
	f.Stalled = o.stalled(now, s.components.Stalled(), cfg.Supervisor.StallAfter)
	since, err := s.source.Failure(now)
	if err == nil {
		since, err = s.unanswered(now)
	}
	f.MongoDB = o.fact("mongodb", now, since, err)
	f.Partitions = s.partitions()
	f.Stopping = fact("stopping", when(s.stopping.Load(), "the node was told to stop"))
	f.Unsaved = fact("unsaved", when(s.node.Failing(), "the last round of checkpoints could not be saved"))
	f.Certificates, f.Identities, f.Log = fact("certificates", s.listeners.Certificates()), fact("identities", s.listeners.Identities()), fact("log", s.logWritten())
	since, err = s.retained.trouble()
	f.Retention = o.fact("retention", now, since, err)
	if s.clusterFacts(&f, now, fact) {
		o.reading(&f, reading, s.opts.Config.Reliability.LagThreshold)
	}
	return f
}

const (
	// unansweredFor is how long MongoDB may be late with the answer to a stream, beyond the
	// requested wait, unaskedFor how long it may answer nothing while no stream is open.
	unansweredFor = 2500 * time.Millisecond
	unaskedFor    = 10 * time.Second
)

// unanswered returns since when MongoDB has answered neither the stream nor anything else, and an
// error if that is too long: a server on a dead network refuses nothing. The caller holds the
// mutex of the observed state.
func (s *Service) unanswered(now time.Time) (since time.Time, err error) {
	tail := s.log.Stats()
	since = s.extent.Answered()
	if tail.LastReply.After(since) {
		since = tail.LastReply
	}
	most := min(s.source.MaxAwait()+unansweredFor, unaskedFor)
	if !tail.Open || tail.Paused || tail.Full { // the stream is not asked
		most = unaskedFor
	}
	if !s.observed.begun.Load() || since.IsZero() {
		return time.Time{}, nil
	}
	return s.observed.silence(since, most, now)
}

// silence returns the time of the last sign of a server, and an error if it is too long ago. The
// caller holds the mutex.
func (o *observed) silence(last time.Time, most time.Duration, now time.Time) (since time.Time, err error) {
	if now.Sub(last)-o.stood.within(last, now) < most {
		return time.Time{}, nil
	}
	return last, fault.Newf(fault.MongoUnreachable, "nothing was answered")
}

// clusterFacts adds the facts about the node's place in the cluster and its start. It reports
// whether the node has been ready.
func (s *Service) clusterFacts(f *health.Facts, now time.Time, fact func(string, error) health.Since) (begun bool) {
	o := &s.observed
	open := s.log.Stats().Open
	unserved := s.member.Served()
	f.Apart = fact("apart", s.member.Apart())
	f.Alarm = fact("alarm", s.alarms.check())
	f.Differ = fact("differ", s.member.Alike())
	f.Unanswered = fact("unanswered", s.supervisor.Unanswered())
	silent, unswept := s.supervisor.Unswept()
	f.Unswept = o.fact("unswept", now, silent, unswept)
	since, err := s.member.Outage()
	switch {
	case err == nil:
	case fault.Of(err) == fault.ClusterCorrupt:
		f.Unread = o.fact("unread", now, since, err)
	case !s.member.Alone() || f.Store == health.SubjectEtcd:
		f.Etcd = o.fact("etcd", now, since, err)
	}
	switch {
	case !f.Etcd.At.IsZero():
		o.etcd = f.Etcd
		o.back = time.Time{}
	case !o.etcd.At.IsZero() && o.back.IsZero():
		o.back = now
	}
	if !o.back.IsZero() {
		f.EtcdWas, f.EtcdBack = o.etcd, o.back
	}
	if open && unserved == nil {
		o.begun.Store(true)
	}
	if !o.begun.Load() {
		why := unserved
		if !open {
			why = errors.New("the change stream is not open yet")
		}
		f.Starting = fact("starting", why)
		return false
	}
	f.Closed = fact("closed", when(!open, "the change stream was lost and is being opened again"))
	detached := !s.member.Trusted()
	f.Detached = fact("detached", when(detached, "the node is not a member of its cluster now"))
	f.Unserved = o.unserved(now, detached, unserved)
	if view, known := s.member.View(); known {
		s.viewFacts(f, view, now, fact)
	}
	return true
}

// missedBeats is how many intervals of heartbeats a node may send none.
const missedBeats = 2

// viewFacts adds the facts about the other nodes.
func (s *Service) viewFacts(f *health.Facts, view cluster.View, now time.Time, fact func(string, error) health.Since) {
	o := &s.observed
	cfg := s.opts.Config
	f.Unled = fact("unled", when(view.Leader == "", "nobody is elected"))
	unowned := 0
	for _, owner := range view.Owners {
		if owner.Process == "" {
			unowned++
		}
	}
	f.Unowned = fact("unowned", when(unowned > 0 && view.Plan.Version > 0, fmt.Sprintf("%d partitions", unowned)))
	f.Refused = fact("refused", s.refused(view))
	others := slices.DeleteFunc(slices.Clone(view.Members), func(m cluster.Member) bool { return m.Node == cfg.Node.ID })
	for _, m := range others {
		f.Others = append(f.Others, m.Problems...)
	}
	silence := missedBeats * cfg.Cluster.HeartbeatInterval
	_, age := s.member.Supervised()
	o.heardThrough(age, now)
	names, since, awaited := o.missing(others, s.heard(), cfg.Cluster.ExpectedNodes-1, silence, cfg.Cluster.LeaseTTL, now)
	f.MissingNodes = names
	missing := cfg.Cluster.ExpectedNodes - len(view.Members) - awaited
	switch {
	case len(names) > 0:
		f.Missing = o.fact("missing", now, since.Add(cfg.Cluster.HeartbeatInterval), errors.New("no heartbeat from "+strings.Join(names, ", ")))
	case missing > 0 && s.node.Uptime() > gathering:
		f.Missing = fact("missing", fmt.Errorf("%d of %d nodes", missing, cfg.Cluster.ExpectedNodes))
	default:
		f.Missing = fact("missing", nil)
	}
}

// refused returns which members the leader gives no partitions, and why, nil for none.
func (s *Service) refused(view cluster.View) error {
	for _, m := range view.Members {
		switch {
		case m.Garbled != nil:
			return fault.Newf(fault.ClusterHeartbeat, "%s: %w", m.Node, m.Garbled)
		case m.Count != 0 && m.Count != s.opts.Config.Cluster.Partitions && m.Kind != cluster.KindGateway:
			return fault.Newf(fault.CheckpointPartitions, "%s has %d partitions, this node %d", m.Node, m.Count, s.opts.Config.Cluster.Partitions)
		}
	}
	return nil
}

// heard returns when which heartbeat of a node arrived last, as the watch of the cluster's keys
// knows it: a view that is taken now and then shows it later.
func (s *Service) heard() func(node string) (beat int64, at time.Time) {
	if watch, does := s.roster.(interface {
		Heard(node string) (int64, time.Time)
	}); does {
		return watch.Heard
	}
	return func(string) (int64, time.Time) { return 0, time.Time{} }
}

// restarting is how long a node that has left by itself may stay away.
const restarting = 2 * time.Minute

// missing returns the names of nodes that should be there and are not heard, and since when;
// awaited are those that have left by themselves, as for a restart. One that dies is there until
// its lease ends, and has been silent for at least two thirds of that, less the time until its last
// heartbeat was noticed. Those that have left are forgotten when there are as many as expected.
func (o *observed) missing(
	others []cluster.Member, heardOf func(node string) (beat int64, at time.Time), expected int, silence, lease time.Duration, now time.Time,
) (names []string, since time.Time, awaited int) {
	if o.beats == nil {
		o.beats = make(map[string]heard)
	}
	present := make(map[string]bool, len(others))
	for _, m := range others {
		present[m.Node] = true
		beat, at := heardOf(m.Node)
		if at.IsZero() || beat < m.Beat { // nobody watches, or a moment ago
			beat = m.Beat
			at = now
		}
		if last, known := o.beats[m.Node]; !known || last.beat < beat {
			o.beats[m.Node] = heard{beat: beat, at: at, stops: m.Status == cluster.StatusStopping}
		}
	}
	since = now
	for node, last := range o.beats {
		lasts := now.Sub(last.at) - o.unheard.within(last.at, now)
		silent := lasts > silence
		fresh := lasts <= min(silence, lease/3)
		mayReturn := fresh || last.stops
		switch {
		case !present[node] && len(others) >= expected:
			delete(o.beats, node)
			continue
		case present[node] && !silent:
			continue
		case !present[node] && mayReturn && last.left.IsZero():
			last.left = now
			o.beats[node] = last
		}
		if !last.left.IsZero() && now.Sub(last.left) < restarting {
			awaited++
			continue
		}
		names = append(names, node)
		if begun := now.Add(-lasts); begun.Before(since) {
			since = begun
		}
	}
	slices.Sort(names)
	return names, since, awaited
}

// gathering is how long after its start a node expects the others.
const gathering = 30 * time.Second

// reading adds the facts about how the node reads the oplog.
func (o *observed) reading(f *health.Facts, r streamer.Reading, tolerated time.Duration) {
	f.Late = o.still("late", f.Now, r.Known, late(r.Lag, tolerated))
	f.Silent = o.fact("silent", f.Now, time.Time{}, when(r.Stuck, "no reply for long, or replies without progress"))
	f.Majority = o.still("majority", f.Now, r.Known, when(r.NoMajority, "the majority commit point does not follow"))
}

// stalled returns the components that are stalled for longer than is tolerated, without the time in
// which the whole node was frozen. Each stall began when it was first seen to have begun: an age
// that does not grow moves its beginning.
func (o *observed) stalled(now time.Time, vitals []health.Vital, tolerated time.Duration) (all []health.Stall) {
	for _, v := range vitals {
		name := "stalled " + v.Slug
		age := time.Duration(v.LastDecision) * time.Millisecond
		began := now.Add(-age)
		if age-o.stood.within(began, now) <= tolerated {
			continue
		}
		if last, there := o.before[name]; there {
			began = last.At
		}
		o.fact(name, now, began, errors.New("no progress"))
		all = append(all, health.Stall{Slug: v.Slug, Since: began})
	}
	return all
}

// late returns an error for a lag that is more than is tolerated; 0 tolerates any.
func late(lag, tolerated time.Duration) error {
	if tolerated <= 0 || lag <= tolerated {
		return nil
	}
	return fmt.Errorf("%s behind, %s are tolerated", lag.Truncate(time.Second), tolerated)
}

// subscribers returns the facts about subscribers. While the extent of the oplog is unknown, those
// that were late, or near its end, still are.
func (o *observed) subscribers(now time.Time, known []streamer.SubscriberStatus, tolerated time.Duration) []health.Subscriber {
	all := make([]health.Subscriber, len(known))
	seen := make(map[string]health.Subscriber, len(known))
	for i, k := range known {
		sub := health.Subscriber{Name: k.Name, Shared: k.Shared}
		measured := k.Lag != nil || k.Position.IsZero() // without a position it is neither
		if k.Shared {
			var behind error
			if k.Lag != nil {
				behind = late(*k.Lag, tolerated)
			}
			sub.Late = o.still("late "+k.Name, now, measured, behind)
		}
		sub.Lost = o.fact("lost "+k.Name, now, time.Time{}, when(k.Losses > 0, "a loss is not acknowledged yet"))
		sub.Failed = o.fact("failed "+k.Name, now, time.Time{}, k.Failure)
		low := k.HeadRoom != nil && k.HeadRoomLevel != oplog.Fine
		sub.Near = o.still("near "+k.Name, now, measured, when(low, "the position leaves the oplog"))
		switch {
		case low:
			sub.HeadRoom = *k.HeadRoom
			sub.Urgent = k.HeadRoomLevel == oplog.CriticallyLow
		case !sub.Near.At.IsZero():
			sub.HeadRoom, sub.Urgent = o.seen[k.Name].HeadRoom, o.seen[k.Name].Urgent
		}
		if !k.Shared && k.Overdue {
			sub.Unacknowledged = health.Since{At: now.Add(-k.Owes)}
		}
		all[i] = sub
		seen[k.Name] = sub
	}
	o.seen = seen
	return all
}

// observedSubscribers returns the facts about the subscribers with a session at the node.
func (s *Service) observedSubscribers(now time.Time) []health.Subscriber {
	o := &s.observed
	all := o.subscribers(now, s.node.Subscribers(), s.opts.Config.Reliability.LagThreshold)
	for _, k := range s.sinks {
		st := k.Status()
		i := slices.IndexFunc(all, func(sub health.Subscriber) bool { return sub.Name == st.Subscriber })
		if i >= 0 {
			o.published(now, &all[i], st)
		}
	}
	return all
}

// published adds the facts about a sink to those about its subscriber: that destinations wait does
// not hide that the whole target is away. The caller holds the mutex.
func (o *observed) published(now time.Time, sub *health.Subscriber, st sink.Status) {
	switch st.State {
	case sink.Halted:
		sub.Failed = o.fact("halted "+sub.Name, now, time.Time{}, fault.Newf(fault.SinkHalted, "%s", st.Error))
	case sink.Waiting:
		sub.Waits = o.fact("waits "+sub.Name, now, time.Time{}, fault.Newf(fault.SinkWaiting, "%s", st.Error))
	case sink.Paused:
		sub.Paused = true
	}
	if st.Silent != nil {
		sub.Unacknowledged = o.without(health.Since{At: *st.Silent, Err: fault.Newf(fault.SinkTarget, "%s", cmp.Or(st.Error, "no answer yet"))}, now)
	}
}
