package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
)

func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// ago is a fact that has held for so long.
func ago(d time.Duration, err error) Since { return Since{At: now().Add(-d), Err: err} }

// A situation is a set of facts, and what is to be concluded from it.
type situation struct {
	facts  func(f *Facts)
	status Status
	ready  bool
	want   string // subject:code:severity of each problem
}

func away() error { return errors.New("connection refused") }

// sunk is a sink of which something holds.
func sunk(change func(s *Subscriber)) func(f *Facts) {
	return func(f *Facts) {
		s := Subscriber{Name: "sink/out", Shared: true}
		change(&s)
		f.Subscribers = append(f.Subscribers, s)
	}
}

// client is a client of which something holds.
func client(change func(s *Subscriber)) func(f *Facts) {
	return func(f *Facts) {
		s := Subscriber{Name: "gateway"}
		change(&s)
		f.Subscribers = append(f.Subscribers, s)
	}
}

func all(changes ...func(f *Facts)) func(f *Facts) {
	return func(f *Facts) {
		for _, change := range changes {
			change(f)
		}
	}
}

// The facts that situations are made of.

func mongoAway(f *Facts) {
	f.MongoDB = ago(4*time.Second, fault.Newf(fault.MongoUnreachable, "dial tcp"))
	f.Closed = ago(4*time.Second, away())
}

// etcdBack says since when etcd answers again.
func etcdBack(since time.Duration) func(f *Facts) {
	return func(f *Facts) { f.EtcdWas, f.EtcdBack = ago(since+10*time.Second, away()), now().Add(-since) }
}

func etcdAway(f *Facts)   { f.Etcd = ago(4*time.Second, away()) }
func detached(f *Facts)   { f.Detached = ago(time.Second, away()) }
func silent(f *Facts)     { f.Silent = ago(time.Second, away()) }
func late(f *Facts)       { f.Late = ago(6*time.Second, away()) }
func unsaved(f *Facts)    { f.Unsaved = ago(4*time.Second, away()) }
func stopping(f *Facts)   { f.Stopping = ago(time.Second, away()) }
func unserved(f *Facts)   { f.Unserved = ago(6*time.Second, away()) }
func unowned(f *Facts)    { f.Unowned = ago(11*time.Second, away()) }
func leaderless(f *Facts) { f.Unled = ago(6*time.Second, away()) }
func missing(f *Facts)    { f.Missing, f.MissingNodes = ago(6*time.Second, away()), []string{"c"} }
func starting(f *Facts)   { f.Starting = ago(time.Hour, away()) }
func unswept(f *Facts)    { f.Unswept = ago(8*time.Second, away()) }
func unanswered(f *Facts) { f.Unanswered = ago(0, away()) }

func sinkAway(f *Facts) {
	sunk(func(s *Subscriber) { s.Unacknowledged = ago(4*time.Second, fault.Newf(fault.SinkTarget, "post")) })(f)
}

func sinkAwayLate(f *Facts) {
	sunk(func(s *Subscriber) {
		s.Unacknowledged, s.Late = ago(4*time.Minute, fault.Newf(fault.SinkTarget, "post")), ago(3*time.Minute, away())
	})(f)
}

func sinkWaits(f *Facts) {
	sunk(func(s *Subscriber) { s.Waits = ago(time.Minute, fault.Newf(fault.SinkWaiting, "topic")) })(f)
}

func sinkNear(f *Facts) {
	sunk(func(s *Subscriber) { s.Near, s.Urgent, s.HeadRoom = ago(0, away()), true, time.Minute })(f)
}

func sinkLateNow(f *Facts) { sunk(func(s *Subscriber) { s.Late = ago(0, away()) })(f) }

func sinkLate(f *Facts) { sunk(func(s *Subscriber) { s.Late = ago(6*time.Second, away()) })(f) }

func sinkHalted(f *Facts) {
	sunk(func(s *Subscriber) {
		s.Failed, s.Late = ago(time.Hour, fault.Newf(fault.SinkHalted, "x")), ago(time.Hour, away())
	})(f)
}

// longAgo has all that other facts say begin an hour ago, except those of MongoDB and etcd.
func longAgo(facts ...func(f *Facts)) func(f *Facts) {
	return func(f *Facts) {
		all(facts...)(f)
		for _, since := range []*Since{
			&f.Closed, &f.Silent, &f.Majority, &f.Late, &f.Detached, &f.Unled, &f.Unserved, &f.Unowned, &f.Missing, &f.Differ, &f.Refused, &f.Unanswered, &f.Unswept, &f.Unsaved,
		} {
			if !since.At.IsZero() {
				since.At = now().Add(-time.Hour)
			}
		}
		for i := range f.Subscribers {
			if s := &f.Subscribers[i]; !s.Late.At.IsZero() {
				s.Late.At = now().Add(-time.Hour)
			}
		}
		for i := range f.Stalled {
			f.Stalled[i].Since = now().Add(-time.Hour)
		}
	}
}

func stalled(slug string) func(f *Facts) {
	return func(f *Facts) { f.Stalled = append(f.Stalled, Stall{Slug: slug, Since: now().Add(-11 * time.Second)}) }
}

// lateElsewhere is a sink that is late at another node, and near the end of the oplog.
func lateElsewhere(f *Facts) {
	f.Others = append(f.Others, Problem{
		Subject: "sink/out", Code: fault.SubscriberLate, Cause: "Sink out is late. Its position leaves the oplog in 1m0s.", Severity: Critical, Since: now(),
		Affects: Affects{Nodes: []string{"b"}},
	})
}

func other(subject string, code fault.Code) func(f *Facts) {
	return func(f *Facts) {
		f.Others = append(f.Others, Problem{
			Subject: subject, Code: code, Cause: "It says so.", Severity: Critical, Since: now().Add(-time.Hour), Affects: Affects{Nodes: []string{"b"}},
		})
	}
}

// situations are what can be wrong with a cluster, with the one verdict about each.
func situations() map[string]situation {
	const (
		mongo  = "mongodb:STRM-MONGODB-UNREACHABLE:critical"
		etcd   = "etcd:STRM-ETCD-UNREACHABLE:critical"
		target = "sink/out:STRM-SINK-TARGET:warning"

		lateSink = "sink/out:STRM-SUBSCRIBER-LATE:warning"
	)
	return map[string]situation{
		"nothing":                          {all(), Healthy, true, ""},
		"it starts":                        {starting, Unhealthy, false, "start:STRM-NODE-STARTING:info"},
		"it starts without MongoDB":        {all(starting, mongoAway), Unhealthy, false, mongo},
		"it starts without etcd":           {all(starting, etcdAway), Unhealthy, false, etcd},
		"it stops":                         {stopping, Degraded, false, "stop:STRM-NODE-STOPPING:info"},
		"it stops and hands over":          {all(stopping, unserved), Unhealthy, false, "stop:STRM-NODE-STOPPING:info"},
		"MongoDB is away":                  {mongoAway, Unhealthy, false, mongo},
		"MongoDB hiccups":                  {func(f *Facts) { f.MongoDB = ago(2*time.Second, away()) }, Healthy, true, ""},
		"MongoDB is away for long":         {all(mongoAway, silent, late, sinkLate, stalled("tail")), Unhealthy, false, mongo},
		"MongoDB is away for all":          {all(mongoAway, other("mongodb", fault.MongoUnreachable)), Unhealthy, false, mongo},
		"MongoDB has the checkpoints":      {all(mongoAway, unsaved, func(f *Facts) { f.Store = SubjectMongoDB }), Unhealthy, false, mongo},
		"credentials are refused":          {func(f *Facts) { f.MongoDB = ago(4*time.Second, fault.Newf(fault.MongoCredentials, "auth")) }, Unhealthy, false, "mongodb:STRM-MONGODB-CREDENTIALS:critical"},
		"MongoDB is away for another node": {other("mongodb", fault.MongoUnreachable), Healthy, true, mongo},
		"the stream is closed":             {func(f *Facts) { f.Closed = ago(4*time.Second, away()) }, Unhealthy, false, "reading:STRM-LOG-STUCK:critical"},
		"the stream is silent":             {all(silent, late, sinkLate), Unhealthy, true, "reading:STRM-LOG-STUCK:critical"},
		"no majority":                      {func(f *Facts) { f.Majority = ago(time.Second, away()) }, Degraded, true, "reading:STRM-MONGODB-MAJORITY:critical"},
		"it reads late":                    {late, Degraded, true, "reading:STRM-LOG-LATE:warning"},
		"it reads late, and so a sink":     {all(late, sinkLate), Degraded, true, "reading:STRM-LOG-LATE:warning"},
		"etcd is away":                     {etcdAway, Degraded, true, etcd},
		"etcd hiccups":                     {func(f *Facts) { f.Etcd = ago(2*time.Second, away()) }, Healthy, true, ""},
		"etcd is away for long":            {all(etcdAway, detached, unsaved, leaderless, unowned, missing, stalled("lease")), Unhealthy, true, etcd},
		"etcd is away, the lease is short": {all(detached, func(f *Facts) { f.Etcd = ago(2*time.Second, away()) }), Unhealthy, true, etcd},
		"MongoDB is away, first seen closed": {func(f *Facts) {
			f.MongoDB, f.Closed = ago(2500*time.Millisecond, away()), ago(3500*time.Millisecond, away())
		}, Healthy, true, ""},
		"etcd is away: old news of others":    {all(etcdAway, other("sink/x", fault.SinkTarget)), Degraded, true, etcd},
		"etcd and MongoDB are away":           {all(mongoAway, etcdAway, detached, silent), Unhealthy, false, etcd + " " + mongo},
		"etcd has an alarm":                   {all(func(f *Facts) { f.Alarm = ago(0, fault.Newf(fault.EtcdAlarm, "NOSPACE")) }, unsaved), Degraded, true, "etcd:STRM-ETCD-ALARM:critical"},
		"the cluster's state is damaged":      {func(f *Facts) { f.Unread = ago(0, fault.Newf(fault.ClusterCorrupt, "plan")) }, Degraded, true, "etcd:STRM-CLUSTER-CORRUPT:critical"},
		"it stood still":                      {all(detached, unowned), Unhealthy, true, "membership:STRM-NODE-DETACHED:critical"},
		"the origin is gone":                  {all(detached, func(f *Facts) { f.Apart = ago(0, fault.Newf(fault.ClusterReplaced, "gone")) }), Unhealthy, false, "membership:STRM-CLUSTER-REPLACED:critical"},
		"etcd is back, it is not yet":         {all(etcdBack(time.Second), func(f *Facts) { f.Detached = ago(3*time.Second, away()) }), Unhealthy, true, etcd},
		"etcd is back, seen later":            {all(etcdBack(time.Second), detached, unowned), Unhealthy, true, etcd},
		"etcd is back, it claims partitions":  {all(etcdBack(time.Second), unserved), Unhealthy, true, etcd},
		"etcd is back, it begins to claim":    {all(etcdBack(time.Second), func(f *Facts) { f.Unserved = ago(time.Second/2, away()) }), Healthy, true, etcd},
		"etcd is back, it elects":             {all(etcdBack(time.Second), func(f *Facts) { f.Unled = ago(time.Second/2, away()) }), Healthy, true, etcd},
		"etcd is back, a handoff later":       {all(etcdBack(9*time.Second), func(f *Facts) { f.Unserved = ago(time.Second, away()) }), Healthy, true, ""},
		"etcd is back, it claims none":        {all(etcdBack(11*time.Second), unserved), Unhealthy, false, "partitions:STRM-CLUSTER-UNOWNED:critical"},
		"etcd is back, and it is":             {etcdBack(time.Second), Healthy, true, ""},
		"etcd is back for long, it is not":    {all(etcdBack(11*time.Second), func(f *Facts) { f.Detached = ago(12*time.Second, away()) }), Unhealthy, true, "membership:STRM-NODE-DETACHED:critical"},
		"etcd is back, another origin":        {all(etcdBack(time.Second), detached, func(f *Facts) { f.Apart = ago(0, fault.Newf(fault.ClusterReplaced, "gone")) }), Unhealthy, false, "membership:STRM-CLUSTER-REPLACED:critical"},
		"etcd is back, it missed beats":       {all(etcdBack(time.Second), missing), Healthy, true, etcd},
		"etcd is back, then a node is frozen": {all(etcdBack(9*time.Second), func(f *Facts) { f.Missing, f.MissingNodes = ago(5*time.Second, away()), []string{"c"} }), Healthy, true, "nodes:STRM-NODE-MISSING:critical"},
		"etcd hiccuped, a node is frozen": {all(missing, func(f *Facts) {
			f.EtcdWas, f.EtcdBack = ago(3*time.Second, away()), now().Add(-time.Second)
		}), Healthy, true, "nodes:STRM-NODE-MISSING:critical"},
		"an election":                               {func(f *Facts) { f.Unled = ago(4*time.Second, away()) }, Healthy, true, ""},
		"nobody leads":                              {all(leaderless, unowned), Healthy, true, "leader:STRM-CLUSTER-LEADERLESS:critical"},
		"a node is frozen":                          {missing, Healthy, true, "nodes:STRM-NODE-MISSING:critical"},
		"a node is frozen that owned":               {all(missing, unowned), Healthy, true, "nodes:STRM-NODE-MISSING:critical"},
		"a handoff":                                 {func(f *Facts) { f.Unserved = ago(time.Second, away()) }, Healthy, true, ""},
		"partitions are not served":                 {unserved, Unhealthy, false, "partitions:STRM-CLUSTER-UNOWNED:critical"},
		"partitions have no owner":                  {unowned, Healthy, true, "partitions:STRM-CLUSTER-UNOWNED:critical"},
		"settings differ":                           {func(f *Facts) { f.Differ = ago(0, fault.Newf(fault.ClusterCoverage, "b")) }, Degraded, true, "settings:STRM-CLUSTER-COVERAGE:warning"},
		"a node is of another size":                 {func(f *Facts) { f.Refused = ago(0, fault.Newf(fault.CheckpointPartitions, "b")) }, Healthy, true, "members:STRM-CHECKPOINT-PARTITIONS:warning"},
		"a node cannot be read":                     {func(f *Facts) { f.Refused = ago(0, away()) }, Healthy, true, "members:STRM-CLUSTER-HEARTBEAT:warning"},
		"nobody sweeps":                             {unswept, Healthy, true, "sweeps:STRM-SUPERVISOR-SWEEP-MISSING:critical"},
		"nobody sweeps: the leader is frozen":       {all(missing, unswept), Healthy, true, "nodes:STRM-NODE-MISSING:critical"},
		"nobody sweeps without etcd":                {all(etcdAway, unswept), Degraded, true, etcd},
		"components do not answer":                  {unanswered, Healthy, true, "components:STRM-SUPERVISOR-COMPONENT-DOWN:critical"},
		"components of a node that is gone":         {all(missing, unanswered), Healthy, true, "nodes:STRM-NODE-MISSING:critical"},
		"it reads late, and a sink is near":         {all(late, sunk(func(s *Subscriber) { s.Near, s.Urgent = ago(0, away()), true })), Degraded, true, "reading:STRM-LOG-LATE:critical"},
		"it reads late, a sink is halted":           {all(late, sinkHalted), Degraded, true, "sink/out:STRM-SINK-HALTED:critical reading:STRM-LOG-LATE:warning"},
		"it reads late, a sink is halted elsewhere": {all(late, other("sink/out", fault.SinkHalted)), Degraded, true, "sink/out:STRM-SINK-HALTED:critical reading:STRM-LOG-LATE:warning"},
		"MongoDB is away, a sink is halted":         {all(mongoAway, sunk(func(s *Subscriber) { s.Failed = ago(time.Second, fault.Newf(fault.SinkHalted, "x")) })), Unhealthy, false, mongo},
		"a sink is halted, then MongoDB is away":    {all(sinkHalted, mongoAway), Unhealthy, false, mongo + " sink/out:STRM-SINK-HALTED:critical"},
		"a sink is late, then MongoDB is away":      {all(longAgo(sinkLate), mongoAway), Unhealthy, false, mongo + " sink/out:STRM-SUBSCRIBER-LATE:warning"},
		"a sink is late, then the log is":           {all(longAgo(sinkLate), late), Degraded, true, "reading:STRM-LOG-LATE:warning sink/out:STRM-SUBSCRIBER-LATE:warning"},
		"it reads late, then MongoDB is away":       {all(longAgo(late), mongoAway), Unhealthy, false, mongo + " reading:STRM-LOG-LATE:warning"},
		"it reads nothing, then MongoDB is away":    {all(longAgo(silent), mongoAway), Unhealthy, false, mongo + " reading:STRM-LOG-STUCK:critical"},
		"it reads late, then it is away for long":   {all(longAgo(late), mongoAway, silent, sinkLate), Unhealthy, false, mongo + " reading:STRM-LOG-LATE:warning"},
		"a component stalls, then MongoDB is away":  {all(longAgo(stalled("snapshots")), mongoAway), Unhealthy, false, "component/snapshots:STRM-SUPERVISOR-COMPONENT-DOWN:critical " + mongo},
		"MongoDB has the checkpoints, failed before": {all(longAgo(unsaved), mongoAway, func(f *Facts) { f.Store = SubjectMongoDB }), Unhealthy, false,
			"checkpoints:STRM-CHECKPOINT-UNSAVED:critical " + mongo},
		"a save fails":                                {func(f *Facts) { f.Unsaved = ago(3*time.Second, away()) }, Healthy, true, ""},
		"a node is frozen, then etcd is away":         {all(longAgo(missing), etcdAway), Degraded, true, etcd + " nodes:STRM-NODE-MISSING:critical"},
		"a node is frozen, then partitions are not":   {all(longAgo(unserved), missing), Unhealthy, false, "nodes:STRM-NODE-MISSING:critical partitions:STRM-CLUSTER-UNOWNED:critical"},
		"partitions are unserved, then it is away":    {all(longAgo(unserved), detached), Unhealthy, true, "membership:STRM-NODE-DETACHED:critical partitions:STRM-CLUSTER-UNOWNED:critical"},
		"partitions are unserved, then it stops":      {all(longAgo(unserved), stopping), Unhealthy, false, "partitions:STRM-CLUSTER-UNOWNED:critical stop:STRM-NODE-STOPPING:info"},
		"settings differ, then etcd is away":          {all(func(f *Facts) { f.Differ = ago(time.Hour, fault.Newf(fault.ClusterCoverage, "b")) }, etcdAway), Degraded, true, etcd + " settings:STRM-CLUSTER-COVERAGE:warning"},
		"etcd is back, it was cut off before":         {all(longAgo(detached), etcdBack(time.Second)), Unhealthy, true, "membership:STRM-NODE-DETACHED:critical"},
		"etcd is back, partitions had no owner":       {all(longAgo(unowned), etcdBack(time.Second)), Healthy, true, "partitions:STRM-CLUSTER-UNOWNED:critical"},
		"etcd is back, it was cut off and a node was": {all(longAgo(missing), detached, etcdBack(time.Second)), Unhealthy, true, etcd + " nodes:STRM-NODE-MISSING:critical"},
		"etcd is back, partitions are not, then a node is frozen": {all(etcdBack(9*time.Second), func(f *Facts) {
			f.Unowned, f.Missing, f.MissingNodes = ago(12*time.Second, away()), ago(5*time.Second, away()), []string{"c"}
		}), Healthy, true, etcd + " nodes:STRM-NODE-MISSING:critical"},
		"etcd is back, a sink is late":              {all(etcdBack(time.Second), sinkLateNow), Degraded, true, etcd},
		"etcd is back for 5 s, a sink is late":      {all(etcdBack(5*time.Second), sinkLateNow), Degraded, true, etcd},
		"etcd is back, a sink was late meanwhile":   {all(etcdBack(time.Second), sinkLate), Degraded, true, lateSink},
		"etcd is back, a sink is near the end":      {all(etcdBack(time.Second), missing, sinkNear), Degraded, true, etcd + " sink/out:STRM-SUBSCRIBER-HEAD-ROOM:critical"},
		"etcd is back, a sink is near it elsewhere": {all(etcdBack(time.Second), missing, lateElsewhere), Healthy, true, etcd + " sink/out:STRM-SUBSCRIBER-LATE:critical"},
		"etcd is away, a sink is late":              {all(etcdAway, sinkLateNow), Degraded, true, etcd + " " + lateSink},
		"etcd is away, a sink is near the end":      {all(etcdAway, sinkNear), Degraded, true, etcd + " sink/out:STRM-SUBSCRIBER-HEAD-ROOM:critical"},
		"etcd has an alarm, a sink is late":         {all(func(f *Facts) { f.Alarm = ago(time.Minute, fault.Newf(fault.EtcdAlarm, "NOSPACE")) }, sinkLateNow), Degraded, true, "etcd:STRM-ETCD-ALARM:critical " + lateSink},
		"the state is damaged, a sink is late":      {all(func(f *Facts) { f.Unread = ago(time.Minute, fault.Newf(fault.ClusterCorrupt, "plan")) }, sinkLateNow), Degraded, true, "etcd:STRM-CLUSTER-CORRUPT:critical " + lateSink},
		"etcd is back, a sink was late":             {all(etcdBack(time.Second), longAgo(sinkLate)), Degraded, true, "sink/out:STRM-SUBSCRIBER-LATE:warning"},
		"etcd was away for 30 s, a sink is late":    {all(etcdBack(11*time.Second), sinkLate), Degraded, true, "sink/out:STRM-SUBSCRIBER-LATE:warning"},
		"etcd is back, a target is away":            {all(etcdBack(time.Second), sinkAway), Degraded, true, target},
		"etcd is back, a sink is halted":            {all(etcdBack(time.Second), sinkHalted), Degraded, true, "sink/out:STRM-SINK-HALTED:critical"},
		"etcd is back, another node had not served": {all(etcdBack(time.Second), missing, other("partitions", fault.ClusterUnowned)), Healthy, true, etcd + " partitions:STRM-CLUSTER-UNOWNED:critical"},
		"etcd is back, another node had waited":     {all(etcdBack(time.Second), missing, other("sweeps", fault.SupervisorMissing)), Healthy, true, etcd + " sweeps:STRM-SUPERVISOR-SWEEP-MISSING:critical"},
		"a sink is near the end, urgently":          {sunk(func(s *Subscriber) { s.Near, s.Urgent = ago(0, away()), true }), Degraded, true, "sink/out:STRM-SUBSCRIBER-HEAD-ROOM:critical"},
		"a sink's checkpoint is corrupt": {sunk(func(s *Subscriber) {
			s.Failed = ago(0, fmt.Errorf("partitions [3]: %w", fault.Newf(fault.CheckpointCorrupt, "x")))
		}), Degraded, true, "sink/out:STRM-CHECKPOINT-CORRUPT:critical"},
		"standard output is wedged": {func(f *Facts) {
			f.Subscribers = []Subscriber{{Name: "stdout", Shared: true, Unacknowledged: ago(time.Hour, away())}}
		}, Degraded, true, "stdout:STRM-SINK-TARGET:warning"},
		"checkpoints cannot be saved":          {unsaved, Degraded, true, "checkpoints:STRM-CHECKPOINT-UNSAVED:critical"},
		"a certificate is broken":              {func(f *Facts) { f.Certificates = ago(0, away()) }, Degraded, true, "certificates:STRM-ACCESS-BAD-CERTIFICATE:warning"},
		"identities are broken":                {func(f *Facts) { f.Identities = ago(0, away()) }, Degraded, true, "identities:STRM-ACCESS-BAD-FILE:warning"},
		"the log is not retained":              {func(f *Facts) { f.Retention = ago(time.Minute, away()) }, Healthy, true, "retention:STRM-RETENTION-STORE:warning"},
		"nobody reads the log":                 {func(f *Facts) { f.Log = ago(0, fault.Newf(fault.NodeLog, "x")) }, Degraded, true, "log:STRM-NODE-LOG:warning"},
		"a target is away":                     {sinkAway, Degraded, true, target},
		"a target hiccups":                     {sunk(func(s *Subscriber) { s.Unacknowledged = ago(2*time.Second, away()) }), Healthy, true, ""},
		"a target is away for long":            {all(sinkAwayLate, stalled("sink-out")), Degraded, true, "sink/out:STRM-SINK-TARGET:critical"},
		"a target is away for all":             {all(sinkAway, other("sink/out", fault.SinkTarget)), Degraded, true, "sink/out:STRM-SINK-TARGET:critical"},
		"a target is away for another node":    {other("sink/out", fault.SinkTarget), Healthy, true, "sink/out:STRM-SINK-TARGET:critical"},
		"a sink is halted":                     {sinkHalted, Degraded, true, "sink/out:STRM-SINK-HALTED:critical"},
		"a destination of a sink waits":        {sinkWaits, Degraded, true, "sink/out:STRM-SINK-WAITING:warning"},
		"a destination waits for another node": {all(sinkWaits, other("sink/out", fault.SinkWaiting)), Degraded, true, "sink/out:STRM-SINK-WAITING:critical"},
		"a destination waits, near the end":    {all(sinkWaits, sunk(func(s *Subscriber) { s.Near, s.Urgent = ago(0, away()), true })), Degraded, true, "sink/out:STRM-SINK-WAITING:critical"},
		"a destination waits, late":            {all(sinkWaits, sunk(func(s *Subscriber) { s.Late = ago(0, away()) })), Degraded, true, "sink/out:STRM-SINK-WAITING:warning"},
		"a destination waits, then all is away": {sunk(func(s *Subscriber) {
			s.Waits, s.Unacknowledged = ago(time.Minute, fault.Newf(fault.SinkWaiting, "topic")), ago(4*time.Second, fault.Newf(fault.SinkTarget, "post"))
		}), Degraded, true, target},
		"a sink lost its place":                 {sunk(func(s *Subscriber) { s.Failed = ago(0, fault.Newf(fault.LogHistoryLost, "x")) }), Degraded, true, "sink/out:STRM-LOG-HISTORY-LOST:critical"},
		"a sink owes a loss":                    {sunk(func(s *Subscriber) { s.Lost = ago(0, away()) }), Degraded, true, "sink/out:STRM-LOG-HISTORY-LOST:critical"},
		"a sink is late":                        {sinkLate, Degraded, true, "sink/out:STRM-SUBSCRIBER-LATE:warning"},
		"a sink is near the end":                {sunk(func(s *Subscriber) { s.Near, s.HeadRoom = ago(0, away()), time.Minute }), Degraded, true, "sink/out:STRM-SUBSCRIBER-HEAD-ROOM:warning"},
		"a target is away, near the end":        {sunk(func(s *Subscriber) { s.Unacknowledged, s.Near, s.Urgent = ago(time.Hour, away()), ago(0, away()), true }), Degraded, true, "sink/out:STRM-SINK-TARGET:critical"},
		"a client with an old start":            {client(func(s *Subscriber) { s.Late = ago(20*time.Hour, away()) }), Healthy, true, ""},
		"a client came too late":                {client(func(s *Subscriber) { s.Lost = ago(0, away()) }), Healthy, true, "clients:STRM-LOG-HISTORY-LOST:warning"},
		"a client acknowledges nothing":         {client(func(s *Subscriber) { s.Unacknowledged = ago(0, nil) }), Healthy, true, "clients:STRM-SESSION-UNACKNOWLEDGED:warning"},
		"a client is near the end":              {client(func(s *Subscriber) { s.Near = ago(0, away()) }), Healthy, true, "oplog:STRM-SUBSCRIBER-HEAD-ROOM:warning"},
		"two clients are near the end":          {all(client(func(s *Subscriber) { s.Near = ago(0, away()) }), client(func(s *Subscriber) { s.Near, s.Urgent = ago(0, away()), true })), Healthy, true, "oplog:STRM-SUBSCRIBER-HEAD-ROOM:warning"},
		"the hub is wedged":                     {stalled("hub"), Degraded, true, "component/hub:STRM-SUPERVISOR-COMPONENT-DOWN:critical"},
		"a sink is wedged":                      {stalled("sink-out"), Degraded, true, "component/sink-out:STRM-SUPERVISOR-COMPONENT-DOWN:critical"},
		"two things at once":                    {all(sinkAway, missing), Degraded, true, "nodes:STRM-NODE-MISSING:critical " + target},
		"everything but the causes is a result": {all(mongoAway, etcdAway, detached, silent, late, unsaved, leaderless, unowned, unserved, missing, sinkLate, stalled("tail"), stalled("lease"), stalled("leader"), stalled("supervisor")), Unhealthy, false, etcd + " " + mongo},
	}
}

// newFacts are those of a node of which nothing is wrong.
func newFacts() Facts {
	return Facts{Now: now(), Node: "a", Store: SubjectEtcd, Partitions: []Partition{{ID: 1, Status: Healthy}, {ID: 4, Status: Lagging}}}
}

func told(problems []Problem) string {
	var texts []string
	for _, p := range problems {
		texts = append(texts, fmt.Sprintf("%s:%s:%s", p.Subject, p.Code, p.Severity))
	}
	return strings.Join(texts, " ")
}

func TestEverySituationHasOneVerdict(t *testing.T) {
	for name, s := range situations() {
		f := newFacts()
		s.facts(&f)
		v := Judge(f)
		if got := told(v.Problems); got != s.want || v.Status != s.status || v.Ready != s.ready {
			t.Errorf("%s: %s, ready %t: %s; want %s, ready %t: %s", name, v.Status, v.Ready, got, s.status, s.ready, s.want)
		}
		for _, p := range v.Problems {
			if p.Cause == "" || p.Remedy == "" || p.Since.IsZero() && p.Affects.Nodes[0] != "b" || len(p.Affects.Nodes) == 0 || !strings.HasPrefix(p.Runbook, runbooks) {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}

// An outage of etcd is one problem from its beginning until the node has got over its consequences,
// however long these take to be problems of their own: while MongoDB is away, too, partitions are
// claimed late.
func TestOutageOfEtcdIsOneProblemUntilTheNodeIsOverIt(t *testing.T) {
	const detachedUntil, servedAfter = time.Second, 8 * time.Second
	back := now()
	var shown []time.Duration
	for at := -6 * time.Second; at < 12*time.Second; at += time.Second / 2 {
		f := newFacts()
		mongoAway(&f)
		f.Now = back.Add(at)
		outage := Since{At: back.Add(-10 * time.Second), Err: away()}
		if at < 0 {
			f.Etcd = outage
		} else {
			f.EtcdWas = outage
			f.EtcdBack = back
		}
		switch {
		case at < detachedUntil:
			f.Detached = Since{At: back.Add(-5 * time.Second), Err: away()}
		case at < servedAfter:
			f.Unserved = Since{At: back.Add(detachedUntil), Err: away()}
		}
		for _, p := range Judge(f).Problems {
			switch p.Subject {
			case SubjectEtcd:
				shown = append(shown, at)
			case SubjectMongoDB:
			default:
				t.Errorf("%s after etcd is back: %s", at, told([]Problem{p}))
			}
		}
	}
	for i := range shown[1:] {
		if shown[i+1]-shown[i] > time.Second/2 {
			t.Errorf("it is over after %s, and again a problem after %s", shown[i], shown[i+1])
		}
	}
	if last := shown[len(shown)-1]; last != servedAfter-time.Second/2 {
		t.Errorf("it is a problem until %s after etcd is back", last)
	}
}

// A sink with two faults has one card, which names both where one is not the other's consequence:
// an old lateness is not hidden by a target that fails now, and nothing is named twice.
func TestCardOfASinkHasAllItsCauses(t *testing.T) {
	target := fault.Newf(fault.SinkTarget, "post")
	readLate := late
	const acknowledges, late, near, leaves = "The target of sink out acknowledges nothing.", "Sink out is late", "Sink out is near the end of the oplog", " Its position leaves the oplog in 1m0s."
	const hour = ", since 2026-03-01 11:00:00 UTC."
	for name, c := range map[string]struct {
		facts func(f *Facts)
		code  fault.Code
		cause string
		since time.Duration
	}{
		"late, then the target fails": {sunk(func(s *Subscriber) { s.Unacknowledged, s.Late = ago(4*time.Second, target), ago(time.Hour, away()) }),
			fault.SinkTarget, acknowledges + " " + late + hour, 4 * time.Second},
		"late because it is paused": {sunk(func(s *Subscriber) { s.Late, s.Paused = ago(time.Hour, away()), true }), fault.SubscriberLate, "Sink out is paused, and late.", time.Hour},
		"late because the target fails": {sunk(func(s *Subscriber) { s.Unacknowledged, s.Late = ago(time.Hour, target), ago(time.Minute, away()) }),
			fault.SinkTarget, acknowledges, time.Hour},
		"late, and noticed with the target": {sunk(func(s *Subscriber) {
			s.Unacknowledged, s.Late = ago(time.Minute, target), ago(time.Minute+noticing, away())
		}),
			fault.SinkTarget, acknowledges, time.Minute + noticing},
		"late, then near the end": {sunk(func(s *Subscriber) {
			s.Late, s.Near, s.HeadRoom = ago(time.Hour, away()), ago(time.Second, away()), time.Minute
		}),
			fault.SubscriberLate, late + "." + leaves, time.Hour},
		"late, and before the oplog": {sunk(func(s *Subscriber) {
			s.Late, s.Near, s.HeadRoom = ago(time.Hour, away()), ago(time.Second, away()), -time.Minute
		}),
			fault.SubscriberLate, late + ". Its position has left the oplog.", time.Hour},
		"near the end and late, then the target fails": {sunk(func(s *Subscriber) {
			s.Unacknowledged, s.Late, s.Near, s.HeadRoom, s.Urgent = ago(4*time.Second, target), ago(time.Hour, away()), ago(time.Minute, away()), time.Minute, true
		}), fault.SubscriberLate, late + "." + leaves + " The target of sink out acknowledges nothing, since 2026-03-01 11:59:56 UTC.", time.Hour},
		"near the end, then the target fails": {sunk(func(s *Subscriber) {
			s.Unacknowledged, s.Near, s.HeadRoom = ago(4*time.Second, target), ago(time.Hour, away()), time.Minute
		}), fault.SinkTarget, acknowledges + " " + near + hour + leaves, 4 * time.Second},
		"near the end, as the log is late":       {all(readLate, sinkNear), fault.LogLate, "The node reads the oplog late. " + near + "." + leaves, 6 * time.Second},
		"the same at another node, late as well": {all(readLate, lateElsewhere), fault.LogLate, "The node reads the oplog late. " + late + "." + leaves, 6 * time.Second},
		"late, then halted": {sunk(func(s *Subscriber) {
			s.Failed, s.Late = ago(time.Second, fault.Newf(fault.SinkHalted, "x")), ago(time.Hour, away())
		}), fault.SinkHalted, "Sink out has stopped, whole or in part. " + late + hour, time.Second},
		"a destination waits, then the target fails": {sunk(func(s *Subscriber) {
			s.Unacknowledged, s.Waits = ago(4*time.Second, target), ago(time.Hour, fault.Newf(fault.SinkWaiting, "topic"))
		}), fault.SinkTarget, acknowledges + " What goes to a destination of sink out waits" + hour, 4 * time.Second},
		"late here, and its target fails for another node": {all(longAgo(sinkLate), func(f *Facts) {
			f.Others = append(f.Others, Problem{Subject: "sink/out", Code: fault.SinkTarget, Cause: acknowledges, Severity: Warning, Since: now().Add(-time.Minute), Affects: Affects{Nodes: []string{"b"}}})
		}), fault.SinkTarget, acknowledges + " " + late + hour, time.Minute},
		"the same at another node": {all(sinkLate, func(f *Facts) {
			f.Others = append(f.Others, Problem{Subject: "sink/out", Code: fault.SubscriberLate, Cause: late + ".", Severity: Warning, Since: now().Add(-time.Minute), Affects: Affects{Nodes: []string{"b"}}})
		}), fault.SubscriberLate, late + ".", time.Minute},
		"a card of another node with both": {all(func(f *Facts) {
			f.Others = append(f.Others, Problem{Subject: "sink/out", Code: fault.SinkTarget, Cause: acknowledges + " " + late + hour, Severity: Warning, Since: now().Add(-time.Minute), Affects: Affects{Nodes: []string{"b"}}})
		}, longAgo(sinkLate)), fault.SinkTarget, acknowledges + " " + late + hour, time.Minute},
	} {
		f := newFacts()
		c.facts(&f)
		v := Judge(f)
		if len(v.Problems) != 1 {
			t.Errorf("%s: %s", name, told(v.Problems))
			continue
		}
		if p := v.Problems[0]; p.Code != c.code || p.Cause != c.cause || !p.Since.Equal(now().Add(-c.since)) {
			t.Errorf("%s: %s since %v: %q, want %s since %v: %q", name, p.Code, now().Sub(p.Since), p.Cause, c.code, c.since, c.cause)
		}
	}
}

// A problem affects what the problems affect that it explains.
func TestCausesAffectWhatTheyExplain(t *testing.T) {
	for name, s := range map[string]struct {
		facts func(f *Facts)
		want  Affects
	}{
		"MongoDB, and all partitions and sinks": {all(mongoAway, sinkLate), Affects{[]string{"a"}, []int{1, 4}, []string{"sink/out"}}},
		"a target, for two nodes":               {all(sinkAwayLate, other("sink/out", fault.SinkTarget)), Affects{[]string{"a", "b"}, []int{4}, []string{"sink/out"}}},
		"a node that is missing, not this one":  {missing, Affects{[]string{"c"}, []int{}, []string{}}},
	} {
		f := newFacts()
		s.facts(&f)
		v := Judge(f)
		if len(v.Problems) != 1 || fmt.Sprint(v.Problems[0].Affects) != fmt.Sprint(s.want) {
			t.Errorf("%s: %+v", name, v.Problems)
		}
	}
}

// Where facts are combined as nobody has thought of, there is one problem for a subject at most, a
// problem that is there has none of its causes beside it, and whatever makes a node unhealthy is
// told.
func TestVerdictsAreSound(t *testing.T) {
	var causes []func(f *Facts)
	for _, s := range situations() {
		causes = append(causes, s.facts)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		f := newFacts()
		for range random.IntN(6) {
			causes[random.IntN(len(causes))](&f)
		}
		v := Judge(f)
		subjects := map[string]bool{}
		for _, p := range v.Problems {
			if subjects[p.Subject] {
				t.Fatalf("two problems of %s: %s", p.Subject, told(v.Problems))
			}
			subjects[p.Subject] = true
		}
		for _, p := range v.Problems {
			if slices.ContainsFunc(v.Problems, func(q Problem) bool { return q.explains(p) }) {
				t.Fatalf("%s is told beside its cause: %s", p.Subject, told(v.Problems))
			}
			if slices.Contains(v.Explained, p.Subject) {
				t.Fatalf("%s is told and explained: %s", p.Subject, told(v.Problems))
			}
		}
		if v.Status != Healthy && !slices.ContainsFunc(v.Problems, func(p Problem) bool { return slices.Contains(p.Affects.Nodes, "a") }) {
			t.Fatalf("%s without a problem: %s", v.Status, told(v.Problems))
		}
	}
}

// Whatever a subject rests on explains only what began with it or after it, and before it was over.
func TestCausesExplainOnlyWhatBeganWithThem(t *testing.T) {
	pairs := 0
	for _, k := range kinds() {
		subject := k.subject
		if strings.HasSuffix(subject, "/") {
			subject += "x"
		}
		for _, cause := range restsOf(subject, fault.SubscriberLate) {
			pairs++
			for name, tt := range map[string]struct {
				began, ended time.Duration // of the problem, and of its cause; ago
				explained    bool
			}{
				"with it":              {time.Minute, 0, true},
				"noticed before it":    {time.Minute + noticing, 0, true},
				"after it":             {time.Second, 0, true},
				"before it":            {time.Minute + noticing + 1, 0, false},
				"long before it":       {time.Hour, 0, false},
				"just before it ended": {10 * time.Second, 9 * time.Second, true},
				"after it ended":       {time.Second, 9 * time.Second, false},
			} {
				p := Problem{Subject: subject, Severity: Warning, Since: now().Add(-tt.began), rests: restsOf(subject, fault.SubscriberLate)}
				q := Problem{Subject: cause, Severity: Critical, Since: now().Add(-time.Minute)}
				if tt.ended != 0 {
					q.ended = now().Add(-tt.ended)
				}
				causes, explained := explain([]Problem{p, q})
				if got := len(causes) == 1 && slices.Equal(explained, []string{subject}); got != tt.explained || !got && len(causes) != 2 {
					t.Errorf("%s, %s %s: %s beside %q, want it explained: %t", subject, name, cause, told(causes), explained, tt.explained)
				}
			}
		}
	}
	if pairs < 30 {
		t.Errorf("only %d relations", pairs)
	}
}

// A subject rests on those only that are listed before it, so that no two explain each other.
func TestCausesHaveAnOrder(t *testing.T) {
	seen := []string{}
	for _, k := range kinds() {
		for _, subject := range k.rests {
			if !slices.Contains(seen, subject) {
				t.Errorf("%s rests on %s, which is not listed before it", k.subject, subject)
			}
		}
		seen = append(seen, k.subject)
	}
}

// What a node reports to others fits into a heartbeat, and reads the same at the others.
func TestReportsFitIntoAHeartbeat(t *testing.T) {
	f := newFacts()
	for i := range 50 {
		sunk(func(s *Subscriber) {
			s.Name, s.Failed = fmt.Sprintf("sink/%d", i), ago(time.Second, errors.New(strings.Repeat("é", 10_000)))
		})(&f)
	}
	reported := Reported(f, 16)
	text, err := json.Marshal(reported)
	if err != nil || len(text) > 16<<10 || len(reported) != 16 {
		t.Fatalf("%d problems of %d bytes, %v", len(reported), len(text), err)
	}
	var heard []Problem
	if err := json.Unmarshal(text, &heard); err != nil {
		t.Fatal(err)
	}
	v := Judge(Facts{Now: now(), Node: "b", Others: heard})
	if len(v.Problems) != 16 || v.Status != Healthy || v.Problems[0].Code != fault.SinkHalted || !slices.Equal(v.Problems[0].Affects.Nodes, []string{"a"}) {
		t.Errorf("%s %+v", v.Status, v.Problems)
	}
	missing(&f)
	starting(&f)
	leaderless(&f)
	heard = Reported(f, 100)
	for _, p := range heard {
		if p.Subject == subjectLeader || p.Severity == Info {
			t.Errorf("%s is reported", p.Subject)
		}
	}
	for i := range 1000 {
		f.MissingNodes = append(f.MissingNodes, fmt.Sprintf("node-%d.%s", i, strings.Repeat("n", 50)))
	}
	if text, err := json.Marshal(Reported(f, 16)); err != nil || len(text) > 16<<10 || !strings.Contains(string(text), "node-0.") {
		t.Errorf("with 1,000 nodes missing: %d bytes, %v", len(text), err)
	}
	if v := Judge(Facts{Now: now(), Node: "b", Others: heard}); slices.ContainsFunc(v.Problems, Problem.OfNodes) {
		t.Error("a node believes another one that nodes are missing")
	}
	if v := Judge(Facts{Now: now(), Others: heard}); !slices.ContainsFunc(v.Problems, Problem.OfNodes) {
		t.Error("readers of the shared state are not told that nodes are missing")
	}
}

// An alert is one of deploy/prometheus that fires for problems.
type alert struct {
	name     string
	severity string
	matchers map[string]func(value string) bool // by label
}

// alerts returns those alerts.
func alerts(t *testing.T) (all []alert) {
	t.Helper()
	rules, err := os.ReadFile("../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`alert: (\w+)\n\s+expr: '.*streamer_problem\{(.*)\}.*\n(?:\s+for: .*\n)?\s+labels: \{severity: (\w+)\}`).FindAllStringSubmatch(string(rules), -1) {
		a := alert{name: m[1], severity: m[3], matchers: map[string]func(string) bool{}}
		for _, part := range regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			if a.matchers[part[1]] != nil {
				t.Fatalf("%s has two conditions of %s", a.name, part[1])
			}
			expr, not := regexp.MustCompile("^(?:"+part[3]+")$"), part[2][0] == '!'
			if !strings.Contains(part[2], "~") {
				expr = regexp.MustCompile("^" + regexp.QuoteMeta(part[3]) + "$")
			}
			a.matchers[part[1]] = func(value string) bool { return expr.MatchString(value) != not }
		}
		all = append(all, a)
	}
	return all
}

// Each problem raises one alert, of its severity, whose page is the one that the problem leads to;
// what merely starts or stops raises none. Each alert is raised by one of the situations.
func TestEveryProblemRaisesOneAlert(t *testing.T) {
	rules := alerts(t)
	raised := map[string]bool{}
	for name, s := range situations() {
		f := newFacts()
		s.facts(&f)
		for _, p := range Judge(f).Problems {
			var fire []string
			severity := ""
			for _, a := range rules {
				labels := map[string]string{"code": string(p.Code), "subject": p.Subject, "severity": string(p.Severity)}
				fires := true
				for label, matches := range a.matchers {
					fires = fires && matches(labels[label])
				}
				if fires {
					fire = append(fire, a.name)
					severity, raised[a.name] = a.severity, true
				}
			}
			switch {
			case p.Severity == Info && len(fire) == 0:
			case len(fire) != 1:
				t.Errorf("%s: %s %s %s raises %q", name, p.Subject, p.Code, p.Severity, fire)
			case severity != string(p.Severity):
				t.Errorf("%s: %s %s %s raises %s, which is %s", name, p.Subject, p.Code, p.Severity, fire[0], severity)
			case p.Runbook != runbooks+"runbooks/"+fire[0]+".md":
				t.Errorf("%s: %s raises %s and leads to %s", name, p.Subject, fire[0], p.Runbook)
			}
		}
	}
	for _, a := range rules {
		if !raised[a.name] {
			t.Errorf("nothing raises %s", a.name)
		}
		if _, err := os.Stat("../docs/runbooks/" + a.name + ".md"); err != nil {
			t.Error(err)
		}
	}
}
