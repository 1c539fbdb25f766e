package preflight

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
)

func TestWhatNeedsAFailedCheckIsNotTried(t *testing.T) {
	ok := finding{Level: OK, Text: "fine"}
	var tried []string
	of := func(name string, f finding, err error, needs ...string) check {
		return check{Name: name, Needs: needs, Code: fault.MongoRefused, run: func(context.Context) (finding, error) {
			tried = append(tried, name)
			return f, err
		}}
	}
	var told []Result
	report := runChecks(t.Context(), []check{
		of("a", ok, nil),
		of("b", ok, errors.New("no answer"), "a"),
		of("c", ok, nil, "a", "b"),
		of("d", ok, nil, "c"),
		of("e", finding{Level: Warn, Text: "hm", Code: fault.ClockSkew}, nil),
		of("f", ok, fault.Newf(fault.CheckpointCorrupt, "the checkpoint"), "e"),
	}, func(r Result) { told = append(told, r) })
	refused, _ := fault.Lookup(fault.MongoRefused)
	skew, _ := fault.Lookup(fault.ClockSkew)
	corrupt, _ := fault.Lookup(fault.CheckpointCorrupt)
	want := Report{OK: false, Checks: []Result{
		{Name: "a", Level: OK, Text: "fine"},
		{Name: "b", Level: Fail, Text: "no answer", Code: fault.MongoRefused, Remedy: refused.Remedy},
		{Name: "c", Level: Skip, Text: "skipped: it needs b"},
		{Name: "d", Level: Skip, Text: "skipped: it needs c"},
		{Name: "e", Level: Warn, Text: "hm", Code: fault.ClockSkew, Remedy: skew.Remedy},
		{Name: "f", Level: Fail, Text: "the checkpoint", Code: fault.CheckpointCorrupt, Remedy: corrupt.Remedy},
	}}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want.Checks, told); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a", "b", "e", "f"}, tried); diff != "" {
		t.Error(diff)
	}
	if r := runChecks(t.Context(), []check{of("w", finding{Level: Warn, Code: fault.ClockSkew}, nil)}, func(Result) {}); !r.OK {
		t.Error("a warning is a failure")
	}
}

// A server that does not answer keeps nobody waiting for what the others say, and each result is
// told as soon as those before it are there.
func TestServersAreAskedAtTheSameTime(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	told := make(chan Result)
	checks := []check{
		{Name: "settings", run: func(context.Context) (finding, error) { return fine("read"), nil }},
		{Name: checkMongo, Lane: laneMongo, run: func(context.Context) (finding, error) { <-answer; return fine("late"), nil }},
		{Name: checkEtcd, Lane: laneEtcd, run: func(context.Context) (finding, error) { close(asked); return finding{}, errors.New("away") }, Code: fault.EtcdUnreachable},
		{Name: "checkpoints", Lane: laneMongo, Needs: []string{checkMongo, checkEtcd}, run: func(context.Context) (finding, error) { return fine("tried"), nil }},
	}
	ended := make(chan Report)
	go func() { ended <- runChecks(t.Context(), checks, func(r Result) { told <- r }) }()
	if r := <-told; r.Name != "settings" { // while MongoDB is silent
		t.Errorf("%+v", r)
	}
	<-asked // etcd, too
	close(answer)
	for _, want := range []string{checkMongo, checkEtcd, "checkpoints"} {
		if r := <-told; r.Name != want {
			t.Errorf("%+v, want %s", r, want)
		}
	}
	if r := <-ended; r.OK || len(r.Checks) != 4 || r.Checks[3].Level != Skip {
		t.Errorf("%+v", r)
	}
}

func TestJudgements(t *testing.T) {
	type kinds = map[change.NamespaceKind][]string
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	log := func(reach time.Duration, size, most int64) oplogFacts {
		return oplogFacts{First: ago(reach), Last: now, Readable: true, Size: size, MaxSize: most}
	}
	stand := func(halt bool, shared []time.Time, exclusive ...time.Time) checkpointFacts {
		all := append(slices.Clone(shared), exclusive...)
		c := checkpointFacts{Created: true, Ours: true, Subscribers: len(all), Shared: shared, Exclusive: exclusive, First: ago(time.Hour), Now: now, Halt: halt}
		if len(all) > 0 {
			c.Latest = slices.MaxFunc(all, time.Time.Compare)
		}
		return c
	}
	shared := func(at ...time.Time) []time.Time { return at }
	up, headless := etcdMember{Endpoint: "a", Leader: true, Size: 10, Quota: 100}, etcdMember{Endpoint: "b"}
	away := etcdMember{Endpoint: "c", Err: errors.New("refused")}
	full := etcdMember{Endpoint: "d", Leader: true, Size: 90, Quota: 100}
	young := stand(true, shared(ago(time.Hour)))
	young.Growing = true
	for name, tt := range map[string]struct {
		got   finding
		level Level
		code  fault.Code
		text  string
	}{
		"version 4.0":   {judgeVersion("4.0.28"), Fail, fault.MongoVersion, "4.0.28 is older than 4.2"},
		"version 4.2":   {judgeVersion("4.2.0"), Warn, fault.MongoVersion, "4.2.0 works, and is no longer maintained by MongoDB"},
		"version 7":     {judgeVersion("7.0.2-ent"), OK, "", "7.0.2-ent"},
		"version 10":    {judgeVersion("10.1"), OK, "", "10.1"},
		"no version":    {judgeVersion("latest"), Warn, fault.MongoVersion, `the server calls its version "latest"`},
		"no progress":   {judgeStreams(false, false), Fail, fault.MongoResume, "an empty reply carries no post-batch resume token"},
		"no startAfter": {judgeStreams(true, false), Fail, fault.MongoResume, "startAfter is refused"},
		"streams":       {judgeStreams(true, true), OK, "", "post-batch resume tokens and startAfter"},
		"no split":      {judgeSplit(false), Warn, fault.MongoSplit, "an event above 16 MiB comes with less in it, or is stepped over and told"},
		"nothing named": {judgeNamespaces(nil), OK, "", "none is named"},
		"a view named": {judgeNamespaces(kinds{change.NamespaceView: {"a.v"}, change.NamespaceTimeSeries: {"a.s"}, change.NamespaceMissing: {"a.m"}}), Fail, fault.SessionUnwatched,
			"views, which have no changes: a.v; time series, which have no changes: a.s; there is no collection yet of: a.m"},
		"a name of nothing yet":         {judgeNamespaces(kinds{change.NamespaceMissing: {"a.m"}, change.NamespaceCollection: {"a.c"}}), Warn, fault.MongoMissing, "there is no collection yet of: a.m"},
		"names that nobody may look at": {judgeNamespaces(kinds{change.NamespaceUnknown: {"a.b"}}), OK, "", "the user may not list these, so nobody can tell whether they exist: a.b"},
		"all names exist":               {judgeNamespaces(kinds{change.NamespaceCollection: {"a.b"}}), OK, "", "all that are named exist"},
		"images not asked for":          {judgeImages("updateLookup", "off", []string{"a.b"}), OK, "", "not asked for: mongodb.full_document is updateLookup, mongodb.full_document_before_change is off"},
		"images there":                  {judgeImages("required", "off", nil), OK, "", "every watched collection keeps them"},
		"images missing":                {judgeImages("required", "off", []string{"a", "b", "c", "d", "e", "f", "g"}), Warn, fault.MongoImages, "mongodb.full_document is required, and these keep none: a, b, c, d, e and 2 more"},
		"images before missing":         {judgeImages("default", "required", []string{"a.b"}), Warn, fault.MongoImages, "mongodb.full_document_before_change is required, and these keep none: a.b"},
		"both images missing":           {judgeImages("whenAvailable", "required", []string{"a.b"}), Warn, fault.MongoImages, "mongodb.full_document is whenAvailable, mongodb.full_document_before_change is required, and these keep none: a.b"},
		"hidden log":                    {judgeOplog(oplogFacts{Last: now}, 0), Warn, fault.LogHidden, "how far it reaches back cannot be told"},
		"hidden log, oldest change":     {judgeOplog(oplogFacts{Last: now, Oldest: []string{"start_from"}}, 0), Warn, fault.LogHidden, "how far it reaches back cannot be told; a first start at the oldest change will be refused: start_from"},
		"full log, long":                {judgeOplog(log(72*time.Hour, 100, 100), 24*time.Hour), OK, "", "it reaches back 3 days"},
		"full log, short":               {judgeOplog(log(23*time.Hour, 95, 100), 24*time.Hour), Warn, fault.LogShort, "it reaches back 23h0m, an outage of 24h0m is to be survived"},
		"young log, will be long":       {judgeOplog(log(time.Hour, 1, 100), 24*time.Hour), OK, "", "it reaches back 1h0m and is filled to 1 %: at this pace it will reach back 4 days"},
		"young log, stays short":        {judgeOplog(log(time.Hour, 50, 100), 24*time.Hour), Warn, fault.LogShort, "it reaches back 1h0m and is filled to 50 %: at this pace it will reach back 2h0m, an outage of 24h0m is to be survived"},
		"log too young to tell":         {judgeOplog(log(time.Minute, 50, 100), 24*time.Hour), OK, "", "it reaches back 1m0s and is filled to 50 %: too young to tell how far it will reach"},
		"nearly empty log":              {judgeOplog(log(100*24*time.Hour, 1, 1<<60), time.Hour), OK, "", "it reaches back 100 days and is filled to 0 %: at this pace it will reach back 3650 days"},
		"size unknown":                  {judgeOplog(log(90*time.Second, 0, 0), time.Minute), OK, "", "it reaches back 1m30s"},
		"majority behind":               {judgeMajority(now, ago(11*time.Second)), Fail, fault.MongoMajority, "it is 11s behind the last operation"},
		"majority":                      {judgeMajority(now, ago(10*time.Second)), OK, "", "it has the last operation"},
		"majority unknown":              {judgeMajority(now, time.Time{}), OK, "", "not told through mongos"},
		"replica set":                   {judgeShards(false, 0, nil, nil), OK, "", "a replica set: a change is sent as soon as a majority has it"},
		"shards without ticks":          {judgeShards(true, 0, nil, nil), Warn, fault.MongoShards, "mongos holds a change until every shard is past it, up to 10s where a shard has no writes: mongodb.tick is 0s"},
		"ticks refused":                 {judgeShards(true, time.Second, errors.New("no"), nil), Warn, fault.MongoShards, "mongos holds a change until every shard is past it, up to 10s where a shard has no writes: mongodb.tick is 1s, and is refused: no"},
		"config servers not asked":      {judgeShards(true, time.Second, nil, errors.New("no")), Warn, fault.MongoShards, "mongos holds a change until the config servers are past it, up to 1s: they cannot be asked to advance: no"},
		"shards with ticks":             {judgeShards(true, time.Second, nil, nil), OK, "", "shards are asked to advance every 1s while changes may wait for them"},
		"clock ahead":                   {judgeClock(now, ago(7*time.Second), ago(6*time.Second)), Warn, fault.ClockSkew, "MongoDB's clock is 6s ahead of this machine's"},
		"clock behind":                  {judgeClock(ago(time.Hour), now, now), Warn, fault.ClockSkew, "MongoDB's clock is 1h0m0s behind this machine's"},
		"slow answer":                   {judgeClock(now, ago(20*time.Second), now.Add(time.Second)), OK, "", "the clocks agree"},
		"options":                       {judgeOptions([]string{"w is replaced", "journal is replaced"}), Warn, fault.MongoOption, "w is replaced; journal is replaced"},
		"alone":                         {judgeDirect("set", nil), OK, "", "set"},
		"one of several":                {judgeDirect("set", []string{"b:1", "c:1"}), Warn, fault.MongoOption, "set: directConnection reads one server and follows no election; the set has others: b:1, c:1"},
		"no options":                    {judgeOptions(nil), OK, "", "the options of mongodb.uri are used as they are"},
		"server nearly full":            {judgeConnections(5, 19, true), Warn, fault.MongoConnections, "the server takes 19 more; a node may need 20"},
		"connections":                   {judgeConnections(5, 20, true), OK, "", "a node may need 20; the server takes 20 more"},
		"connections unknown":           {judgeConnections(5, 0, false), OK, "", "a node may need 20; the server does not tell how many it still takes"},
		"no checkpoints":                {judgeCheckpoints(checkpointFacts{}), OK, "", "none yet: the first start begins by start_from"},
		"checkpoints of others":         {judgeCheckpoints(checkpointFacts{Created: true, Origin: "x", Source: "y"}), Fail, fault.CheckpointSource, "they are of x, mongodb.uri leads to y"},
		"no checkpoint saved":           {judgeCheckpoints(stand(false, nil)), OK, "", "0 subscribers have one"},
		"checkpoints":                   {judgeCheckpoints(stand(true, shared(ago(time.Minute)), ago(10*time.Minute))), OK, "", "2 subscribers have one; the earliest leaves the oplog in 50m"},
		"checkpoints in a young oplog":  {judgeCheckpoints(young), OK, "", "1 subscribers have one; nothing leaves the oplog before it has reached its size"},
		"a checkpoint ahead":            {judgeCheckpoints(stand(false, nil, ago(time.Minute), now.Add(time.Second))), Fail, fault.LogAhead, "2 subscribers have one; the latest is of 2026-01-31T12:00:01Z, MongoDB is at 2026-01-31T12:00:00Z"},
		"a checkpoint lost":             {judgeCheckpoints(stand(false, shared(ago(2*time.Hour)))), Warn, fault.LogHistoryLost, "1 subscribers have one; the earliest is of 2026-01-31T10:00:00Z, the oplog begins at 2026-01-31T11:00:00Z: what is between will be told as lost"},
		"a shared one, to halt":         {judgeCheckpoints(stand(true, shared(ago(2*time.Hour)))), Fail, fault.LogHistoryLost, "1 subscribers have one; the earliest is of 2026-01-31T10:00:00Z, the oplog begins at 2026-01-31T11:00:00Z"},
		"an exclusive one, to halt":     {judgeCheckpoints(stand(true, shared(now), ago(2*time.Hour))), Warn, fault.LogHistoryLost, "2 subscribers have one; the earliest is of 2026-01-31T10:00:00Z, the oplog begins at 2026-01-31T11:00:00Z: what is between will be told as lost"},
		"etcd":                          {judgeEtcd([]etcdMember{up, up}, nil), OK, "", "2 of 2 endpoints answer, version "},
		"one endpoint away":             {judgeEtcd([]etcdMember{up, away}, nil), Warn, fault.EtcdMember, "c does not answer (refused)"},
		"no leader":                     {judgeEtcd([]etcdMember{headless, away}, nil), Fail, fault.EtcdMember, "b has no leader; c does not answer (refused)"},
		"alarm":                         {judgeEtcd([]etcdMember{up}, []string{"NOSPACE"}), Fail, fault.EtcdAlarm, "raised: NOSPACE"},
		"nearly full":                   {judgeEtcd([]etcdMember{up, full}, nil), Warn, fault.EtcdAlarm, "d has used 90 % of its quota"},
		"never compacted":               {judgeCompaction(7, true, false), Warn, fault.EtcdCompaction, "every one of its 7 revisions is still there"},
		"compacted once, long ago":      {judgeCompaction(7_000_000, false, true), Warn, fault.EtcdCompaction, "the last 1000000 revisions are still there"},
		"compacted":                     {judgeCompaction(7_000_000, false, false), OK, "", "it has compacted"},
		"sharded, just told":            {judgeCheckpoints(checkpointFacts{Created: true, Ours: true, Subscribers: 1, Shared: shared(now), Latest: now, Now: ago(9 * time.Second), Slack: 15 * time.Second}), OK, "", "1 subscribers have one"},
	} {
		want := finding{Level: tt.level, Code: tt.code, Text: tt.text}
		if diff := cmp.Diff(want, tt.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// An etcd that does not answer in time has refused nothing: its refusals have a code of their own.
func TestEtcdThatDoesNotAnswerRefusesNothing(t *testing.T) {
	cfg := config.Config{}
	cfg.Reliability.Checkpoint.Backend = config.BackendEtcd
	seen := 0
	for _, c := range checks(&backend.Conn{Config: cfg}, Source{}, 0) {
		if c.Lane != laneEtcd {
			continue
		}
		seen++
		if r := c.result(finding{}, context.DeadlineExceeded); r.Level != Fail || r.Code != fault.EtcdUnreachable {
			t.Errorf("%+v", r)
		}
	}
	if seen != 3 {
		t.Errorf("%d checks ask etcd", seen)
	}
}
