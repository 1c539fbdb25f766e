package preflight_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/preflight"
)

func TestWhatNeedsAFailedCheckIsNotTried(t *testing.T) {
	ok := preflight.Finding{Level: preflight.OK, Text: "fine"}
	var tried []string
	check := func(name string, f preflight.Finding, err error, needs ...string) preflight.Check {
		return preflight.Check{Name: name, Needs: needs, Code: fault.MongoRefused, Find: func(context.Context) (preflight.Finding, error) {
			tried = append(tried, name)
			return f, err
		}}
	}
	report := preflight.Run(t.Context(), []preflight.Check{
		check("a", ok, nil),
		check("b", ok, errors.New("no answer"), "a"),
		check("c", ok, nil, "a", "b"),
		check("d", ok, nil, "c"),
		check("e", preflight.Finding{Level: preflight.Warn, Text: "hm", Code: fault.ClockSkew}, nil),
		check("f", ok, fault.Newf(fault.CheckpointCorrupt, "the checkpoint"), "e"),
	})
	refused, _ := fault.Lookup(fault.MongoRefused)
	skew, _ := fault.Lookup(fault.ClockSkew)
	corrupt, _ := fault.Lookup(fault.CheckpointCorrupt)
	want := preflight.Report{OK: false, Checks: []preflight.Result{
		{Name: "a", Level: preflight.OK, Text: "fine"},
		{Name: "b", Level: preflight.Fail, Text: "no answer", Code: fault.MongoRefused, Remedy: refused.Remedy},
		{Name: "c", Level: preflight.Skip, Text: "not tried: it needs b"},
		{Name: "d", Level: preflight.Skip, Text: "not tried: it needs c"},
		{Name: "e", Level: preflight.Warn, Text: "hm", Code: fault.ClockSkew, Remedy: skew.Remedy},
		{Name: "f", Level: preflight.Fail, Text: "the checkpoint", Code: fault.CheckpointCorrupt, Remedy: corrupt.Remedy},
	}}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a", "b", "e", "f"}, tried); diff != "" {
		t.Error(diff)
	}
	if r := preflight.Run(t.Context(), []preflight.Check{check("w", preflight.Finding{Level: preflight.Warn, Code: fault.ClockSkew}, nil)}); !r.OK {
		t.Error("a warning is a failure")
	}
}

func TestJudgements(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	log := func(reach time.Duration, size, most int64) preflight.Log {
		return preflight.Log{First: ago(reach), Last: now, Readable: true, Size: size, MaxSize: most}
	}
	stand := func(halt bool, shared []time.Time, exclusive ...time.Time) preflight.Checkpoints {
		all := append(slices.Clone(shared), exclusive...)
		c := preflight.Checkpoints{Created: true, Ours: true, Subscribers: len(all), Shared: shared, Exclusive: exclusive, First: ago(time.Hour), Now: now, Halt: halt}
		if len(all) > 0 {
			c.Latest = slices.MaxFunc(all, time.Time.Compare)
		}
		return c
	}
	shared := func(at ...time.Time) []time.Time { return at }
	up, headless := preflight.Member{Endpoint: "a", Leader: true, Size: 10, Quota: 100}, preflight.Member{Endpoint: "b"}
	away := preflight.Member{Endpoint: "c", Err: errors.New("refused")}
	full := preflight.Member{Endpoint: "d", Leader: true, Size: 90, Quota: 100}
	for name, tt := range map[string]struct {
		got   preflight.Finding
		level preflight.Level
		code  fault.Code
		text  string
	}{
		"version 4.0":               {preflight.Version("4.0.28"), preflight.Fail, fault.MongoVersion, "4.0.28 is older than 4.2"},
		"version 4.2":               {preflight.Version("4.2.0"), preflight.Warn, fault.MongoVersion, "4.2.0 works, and is no longer maintained by MongoDB"},
		"version 7":                 {preflight.Version("7.0.2-ent"), preflight.OK, "", "7.0.2-ent"},
		"version 10":                {preflight.Version("10.1"), preflight.OK, "", "10.1"},
		"no version":                {preflight.Version("latest"), preflight.Warn, fault.MongoVersion, `the server calls its version "latest"`},
		"no progress":               {preflight.Streams(false, false), preflight.Fail, fault.MongoResume, "an empty reply carries no post-batch resume token"},
		"no startAfter":             {preflight.Streams(true, false), preflight.Fail, fault.MongoResume, "startAfter is refused"},
		"streams":                   {preflight.Streams(true, true), preflight.OK, "", "post-batch resume tokens and startAfter"},
		"no split":                  {preflight.Split(false), preflight.Warn, fault.MongoSplit, "an event above 16 MiB comes with less in it, or is stepped over and told"},
		"images not asked for":      {preflight.Images("updateLookup", "off", []string{"a.b"}), preflight.OK, "", "not asked for: mongodb.full_document is updateLookup, mongodb.full_document_before_change is off"},
		"images there":              {preflight.Images("required", "off", nil), preflight.OK, "", "every watched collection keeps them"},
		"images missing":            {preflight.Images("required", "off", []string{"a", "b", "c", "d", "e", "f", "g"}), preflight.Warn, fault.MongoImages, "mongodb.full_document is required, and these keep none: a, b, c, d, e and 2 more"},
		"images before missing":     {preflight.Images("default", "required", []string{"a.b"}), preflight.Warn, fault.MongoImages, "mongodb.full_document_before_change is required, and these keep none: a.b"},
		"both images missing":       {preflight.Images("whenAvailable", "required", []string{"a.b"}), preflight.Warn, fault.MongoImages, "mongodb.full_document is whenAvailable, mongodb.full_document_before_change is required, and these keep none: a.b"},
		"hidden log":                {preflight.Oplog(preflight.Log{Last: now}, 0), preflight.Warn, fault.LogHidden, "how far it reaches back cannot be told"},
		"full log, long":            {preflight.Oplog(log(72*time.Hour, 100, 100), 24*time.Hour), preflight.OK, "", "it reaches back 3 days"},
		"full log, short":           {preflight.Oplog(log(23*time.Hour, 95, 100), 24*time.Hour), preflight.Warn, fault.LogShort, "it reaches back 23h0m, an outage of 24h0m is to be survived"},
		"young log, will be long":   {preflight.Oplog(log(time.Hour, 1, 100), 24*time.Hour), preflight.OK, "", "it reaches back 1h0m and is filled to 1 %: at this pace it will reach back 4 days"},
		"young log, stays short":    {preflight.Oplog(log(time.Hour, 50, 100), 24*time.Hour), preflight.Warn, fault.LogShort, "it reaches back 1h0m and is filled to 50 %: at this pace it will reach back 2h0m, an outage of 24h0m is to be survived"},
		"log too young to tell":     {preflight.Oplog(log(time.Minute, 50, 100), 24*time.Hour), preflight.OK, "", "it reaches back 1m0s and is filled to 50 %: too young to tell how far it will reach"},
		"nearly empty log":          {preflight.Oplog(log(100*24*time.Hour, 1, 1<<60), time.Hour), preflight.OK, "", "it reaches back 100 days and is filled to 0 %: at this pace it will reach back 3650 days"},
		"size unknown":              {preflight.Oplog(log(90*time.Second, 0, 0), time.Minute), preflight.OK, "", "it reaches back 1m30s"},
		"majority behind":           {preflight.Majority(now, ago(11*time.Second)), preflight.Fail, fault.MongoMajority, "it is 11s behind the last operation"},
		"majority":                  {preflight.Majority(now, ago(10*time.Second)), preflight.OK, "", "it has the last operation"},
		"majority unknown":          {preflight.Majority(now, time.Time{}), preflight.OK, "", "not told through mongos"},
		"replica set":               {preflight.Shards(false, 0, nil, nil), preflight.OK, "", "a replica set: a change is sent as soon as a majority has it"},
		"shards without ticks":      {preflight.Shards(true, 0, nil, nil), preflight.Warn, fault.MongoShards, "mongos holds a change until every shard is past it, up to 10s where a shard has no writes: mongodb.tick is 0s"},
		"ticks refused":             {preflight.Shards(true, time.Second, errors.New("no"), nil), preflight.Warn, fault.MongoShards, "mongos holds a change until every shard is past it, up to 10s where a shard has no writes: mongodb.tick is 1s, and is refused: no"},
		"config servers not asked":  {preflight.Shards(true, time.Second, nil, errors.New("no")), preflight.Warn, fault.MongoShards, "mongos holds a change until the config servers are past it, up to 1s: they cannot be asked to advance: no"},
		"shards with ticks":         {preflight.Shards(true, time.Second, nil, nil), preflight.OK, "", "shards are asked to advance every 1s while changes may wait for them"},
		"clock ahead":               {preflight.Clock(now, ago(7*time.Second), ago(6*time.Second)), preflight.Warn, fault.ClockSkew, "MongoDB's clock is 6s ahead of this machine's"},
		"clock behind":              {preflight.Clock(ago(time.Hour), now, now), preflight.Warn, fault.ClockSkew, "MongoDB's clock is 1h0m0s behind this machine's"},
		"slow answer":               {preflight.Clock(now, ago(20*time.Second), now.Add(time.Second)), preflight.OK, "", "the clocks agree"},
		"small pool":                {preflight.Connections(5, 3, 0, false), preflight.Warn, fault.MongoConnections, "mongodb.uri allows 3 beside the streams' own; a node may need 10"},
		"server nearly full":        {preflight.Connections(5, 0, 19, true), preflight.Warn, fault.MongoConnections, "the server takes 19 more; a node may need 20"},
		"connections":               {preflight.Connections(5, 100, 20, true), preflight.OK, "", "a node may need 20; the server takes 20 more"},
		"connections unknown":       {preflight.Connections(5, 0, 0, false), preflight.OK, "", "a node may need 20; the server does not tell how many it still takes"},
		"no checkpoints":            {preflight.Resuming(preflight.Checkpoints{}), preflight.OK, "", "none yet: the first start begins by start_from"},
		"checkpoints of others":     {preflight.Resuming(preflight.Checkpoints{Created: true, Origin: "x", Source: "y"}), preflight.Fail, fault.CheckpointSource, "they are of x, mongodb.uri leads to y"},
		"no checkpoint saved":       {preflight.Resuming(stand(false, nil)), preflight.OK, "", "0 subscribers have one"},
		"checkpoints":               {preflight.Resuming(stand(true, shared(ago(time.Minute)), ago(10*time.Minute))), preflight.OK, "", "2 subscribers have one; the earliest leaves the oplog in 50m"},
		"a checkpoint ahead":        {preflight.Resuming(stand(false, nil, ago(time.Minute), now.Add(time.Second))), preflight.Fail, fault.LogAhead, "2 subscribers have one; the latest is of 2026-01-31T12:00:01Z, MongoDB is at 2026-01-31T12:00:00Z"},
		"a checkpoint lost":         {preflight.Resuming(stand(false, shared(ago(2*time.Hour)))), preflight.Warn, fault.LogHistoryLost, "1 subscribers have one; the earliest is of 2026-01-31T10:00:00Z, the oplog begins at 2026-01-31T11:00:00Z: what is between will be told as lost"},
		"a shared one, to halt":     {preflight.Resuming(stand(true, shared(ago(2*time.Hour)))), preflight.Fail, fault.LogHistoryLost, "1 subscribers have one; the earliest is of 2026-01-31T10:00:00Z, the oplog begins at 2026-01-31T11:00:00Z"},
		"an exclusive one, to halt": {preflight.Resuming(stand(true, shared(now), ago(2*time.Hour))), preflight.Warn, fault.LogHistoryLost, "2 subscribers have one; the earliest is of 2026-01-31T10:00:00Z, the oplog begins at 2026-01-31T11:00:00Z: what is between will be told as lost"},
		"etcd":                      {preflight.Etcd([]preflight.Member{up, up}, nil), preflight.OK, "", "2 of 2 endpoints answer, version "},
		"one endpoint away":         {preflight.Etcd([]preflight.Member{up, away}, nil), preflight.Warn, fault.EtcdMember, "c does not answer (refused)"},
		"no leader":                 {preflight.Etcd([]preflight.Member{headless, away}, nil), preflight.Fail, fault.EtcdMember, "b has no leader; c does not answer (refused)"},
		"alarm":                     {preflight.Etcd([]preflight.Member{up}, []string{"NOSPACE"}), preflight.Fail, fault.EtcdAlarm, "raised: NOSPACE"},
		"nearly full":               {preflight.Etcd([]preflight.Member{up, full}, nil), preflight.Warn, fault.EtcdAlarm, "d has used 90 % of its quota"},
		"never compacted":           {preflight.Compaction(7, true, false), preflight.Warn, fault.EtcdCompaction, "every one of its 7 revisions is still there"},
		"compacted once, long ago":  {preflight.Compaction(7_000_000, false, true), preflight.Warn, fault.EtcdCompaction, "the last 1000000 revisions are still there"},
		"compacted":                 {preflight.Compaction(7_000_000, false, false), preflight.OK, "", "it has compacted"},
		"sharded, just told":        {preflight.Resuming(preflight.Checkpoints{Created: true, Ours: true, Subscribers: 1, Shared: shared(now), Latest: now, Now: ago(9 * time.Second), Slack: 15 * time.Second}), preflight.OK, "", "1 subscribers have one"},
	} {
		want := preflight.Finding{Level: tt.level, Code: tt.code, Text: tt.text}
		if diff := cmp.Diff(want, tt.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
