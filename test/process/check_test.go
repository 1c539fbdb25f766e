package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
)

// findings is what streamer check writes as JSON.
type findings struct {
	OK     bool
	Checks []struct{ Name, Result, Text, Code, Remedy string }
}

// notOK lists the checks that are not ok, with their codes.
func (f findings) notOK() string {
	var list []string
	for _, c := range f.Checks {
		if c.Result != "ok" {
			list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Name, c.Result, c.Code)))
		}
	}
	return strings.Join(list, ", ")
}

// check runs streamer check.
func (l *lab) check(args ...string) (*process, findings) {
	l.t.Helper()
	p := l.operate(append([]string{"check", "-o", "json"}, args...)...)
	p.wait()
	return p, decode[findings](l.t, strings.Join(p.output.all(), "\n"))
}

func TestCheckFindsNothingWrongAndWritesNothing(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			server := devmongotest.Start(t, devmongo.Config{Release: "7.0"})
			l := labOn(t, backend, server.URI()).with("STREAMER_MONGODB_FULL_DOCUMENT=required")
			l.create(true)
			p, found := l.check()
			want := map[string]string{"etcd": "compaction warn STRM-ETCD-COMPACTION", "mongo": ""}[backend] // an etcd that is new has compacted nothing
			if p.cmd.ProcessState.ExitCode() != 0 || !found.OK || found.notOK() != want || len(found.Checks) < 12 {
				t.Errorf("%+v", found)
			}
			unchanged(t, map[string]string{}, l.store.everything())

			use(l)
			before := l.store.everything()
			if _, found := l.check(); !found.OK || found.notOK() != want {
				t.Errorf("with marks: %+v", found)
			}
			human := l.result("check")
			for _, c := range found.Checks {
				if !strings.Contains(human, c.Name) {
					t.Errorf("the table lacks %s: %s", c.Name, human)
				}
			}
			unchanged(t, before, l.store.everything())
		})
	}
}

// create makes the lab's collection.
func (l *lab) create(images bool) {
	l.t.Helper()
	opts := options.CreateCollection()
	if images {
		opts.SetChangeStreamPreAndPostImages(bson.D{{Key: "enabled", Value: true}})
	}
	if err := l.client.Database(l.database).CreateCollection(l.t.Context(), "orders", opts); err != nil {
		l.t.Fatal(err)
	}
}

// What is wrong is told with its code and its remedy; only what keeps a node from working is an
// error.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	closed := devmongotest.FreeAddress()
	standalone := devmongotest.Start(t, devmongo.Config{Standalone: true})
	l, server := newDevLab(t, "etcd") // a MongoDB 4.4, which is old and does not split
	use(l)
	const always = "version warn STRM-MONGODB-VERSION, split warn STRM-MONGODB-SPLIT"
	const young = "compaction warn STRM-ETCD-COMPACTION"
	const noLog = "version skip, read_log skip, resume skip, namespaces skip, split skip, images skip, oplog skip, majority skip, shards skip, clock skip, connections skip"
	denied := func(commands ...string) func() {
		return func() {
			failPoint(l, server, "alwaysOn", bson.D{
				{Key: "failCommands", Value: commands}, {Key: "errorCode", Value: 13}, {Key: "appName", Value: "streamer " + l.cluster + "/operator"},
			})
		}
	}
	for _, tt := range []struct {
		name     string
		settings []string
		prepare  func()
		want     string
		code     fault.Code // empty where there are warnings only
	}{
		{"MongoDB away", []string{"STREAMER_MONGODB_URI=mongodb://" + closed + "/?replicaSet=rs0", "STREAMER_MONGODB_SERVER_SELECTION_TIMEOUT=300ms"}, nil,
			"mongodb fail STRM-MONGODB-UNREACHABLE, " + noLog + ", " + young + ", checkpoints skip", fault.MongoUnreachable},
		{"standalone", []string{"STREAMER_MONGODB_URI=" + standalone.URI()}, nil,
			"mongodb fail STRM-MONGODB-STANDALONE, " + noLog + ", " + young + ", checkpoints skip", fault.MongoStandalone},
		{"no right to watch", nil, denied("aggregate"),
			"version warn STRM-MONGODB-VERSION, read_log fail STRM-MONGODB-UNAUTHORIZED, resume skip, split skip, " + young, fault.MongoUnauthorized},
		{"no right to read the oplog", nil, denied("find"), always + ", oplog warn STRM-LOG-HIDDEN, " + young, ""},
		{"options of others", []string{"STREAMER_MONGODB_URI=" + server.URI() + "&maxPoolSize=1&timeoutMS=50&readPreference=secondary&w=0"}, nil,
			"mongodb_options warn STRM-MONGODB-OPTION, " + always + ", " + young, ""},
		{"etcd away", []string{"STREAMER_ETCD_ENDPOINTS=" + closed, "STREAMER_ETCD_DIAL_TIMEOUT=300ms"}, nil,
			always + ", etcd fail STRM-ETCD-UNREACHABLE, compaction skip, checkpoint_store skip, checkpoints skip", fault.EtcdUnreachable},
		{"one endpoint away", []string{"STREAMER_ETCD_ENDPOINTS=" + strings.Join(l.store.(*etcdStore).endpoints, ",") + "," + closed}, nil,
			always + ", etcd warn STRM-ETCD-MEMBER, " + young, ""},
		{"corrupt mark", nil, func() { l.store.setCheckpoint(3, "{}") }, always + ", " + young + ", checkpoints fail STRM-CHECKPOINT-CORRUPT", fault.CheckpointCorrupt},
		{"another number of partitions", []string{"STREAMER_CLUSTER_PARTITIONS=8"}, nil, always + ", " + young + ", checkpoints fail STRM-CHECKPOINT-PARTITIONS", fault.CheckpointPartitions},
		{"marks of another deployment", nil, func() { moveOrigin(l) }, always + ", " + young + ", checkpoints fail STRM-CHECKPOINT-SOURCE", fault.CheckpointSource},
		{"a mark ahead", nil, func() { moveMark(l, 3, time.Hour) }, always + ", " + young + ", checkpoints fail STRM-LOG-AHEAD", fault.LogAhead},
		{"a mark lost", nil, func() { moveMark(l, 3, -1000*time.Hour) }, always + ", " + young + ", checkpoints warn STRM-LOG-HISTORY-LOST", ""},
		{"a mark lost, to halt", []string{"STREAMER_ON_HISTORY_LOST=halt"}, func() { moveMark(l, 3, -1000*time.Hour) },
			always + ", " + young + ", checkpoints fail STRM-LOG-HISTORY-LOST", fault.LogHistoryLost},
		{"no right to write marks in MongoDB", []string{"STREAMER_RELIABILITY_CHECKPOINT_BACKEND=mongo"}, denied("update"),
			always + ", checkpoint_store fail STRM-MONGODB-UNAUTHORIZED, checkpoints skip", fault.MongoUnauthorized},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l.t = t
			defer func(before map[string]string) { l.store.restore(before) }(l.store.everything())
			if tt.prepare != nil {
				tt.prepare()
				defer failPoint(l, server, "off", bson.D{})
			}
			before := l.store.everything()
			p, found := l.with(tt.settings...).check()
			if got := found.notOK(); got != tt.want {
				t.Errorf("found %s\n want %s\n%+v", got, tt.want, found)
			}
			for _, c := range found.Checks {
				if entry, known := fault.Lookup(fault.Code(c.Code)); c.Code != "" && (!known || c.Remedy != entry.Remedy || c.Text == "") {
					t.Errorf("%+v", c)
				}
			}
			if tt.code != "" {
				p.refused(tt.code, "checks failed")
			} else if exit := p.cmd.ProcessState.ExitCode(); exit != 0 || !found.OK {
				t.Errorf("exit code %d of warnings", exit)
			}
			unchanged(t, before, l.store.everything())
		})
	}
	l.t = t
}

func TestCheckFindsAShortOplog(t *testing.T) {
	t.Parallel()
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0", OplogBytes: 64 << 10})
	l := labOn(t, "mongo", server.URI())
	if _, found := l.check(); found.notOK() != "" {
		t.Errorf("before it is full: %+v", found)
	}
	l.insert(0, 2000)
	if _, found := l.check(); !found.OK || found.notOK() != "oplog warn STRM-LOG-SHORT" || !strings.Contains(fmt.Sprint(found), "an outage of 1h0m is to be survived") {
		t.Errorf("%+v", found)
	}
	if _, found := l.check("--outage", "0s"); found.notOK() != "" {
		t.Errorf("nothing is to be survived: %+v", found)
	}
	if _, found := l.with("STREAMER_MONGODB_OUTAGE=2h").check(); !strings.Contains(fmt.Sprint(found), "an outage of 2h0m is to be survived") {
		t.Errorf("the configured outage: %v", found)
	}
	l.operate("check", "--outage", "-1h").refused(fault.CommandBadArgument, "negative")
	l.operate("check", "--outage", "long").refused(fault.CommandBadArgument, "outage")
	l.with("STREAMER_CLUSTER_PARTITIONS=0").operate("check").refused(fault.ConfigBadValue, "STREAMER_CLUSTER_PARTITIONS")
}

// How late changes of a sharded cluster arrive is told, and whether ticks would work, without
// making one.
func TestCheckTellsHowLateShardsAre(t *testing.T) {
	t.Parallel()
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0", Preset: "sharded", Adjust: func(p *devmongo.Profile) { p.NoopEvery, p.ConfigNoopEvery = 0, 0 }})
	l := labOn(t, "etcd", server.URI())
	const always = "oplog warn STRM-LOG-HIDDEN, "
	const young = "compaction warn STRM-ETCD-COMPACTION"
	ticking := l.with("STREAMER_MONGODB_TICK=200ms")
	entries := server.Stats().OplogEntries
	for _, tt := range []struct {
		name    string
		lab     *lab
		prepare func()
		want    string
		says    string
	}{
		{"without ticks", l, nil, always + "shards warn STRM-MONGODB-SHARDS, " + young, "up to 10s"},
		{"with ticks", ticking, nil, always + young, "every 200ms"},
		{"without the right", ticking, func() {
			failPoint(l, server, "alwaysOn", bson.D{
				{Key: "failCommands", Value: bson.A{"appendOplogNote"}}, {Key: "errorCode", Value: 13}, {Key: "appName", Value: "streamer " + l.cluster + "/operator"},
			})
		}, always + "shards warn STRM-MONGODB-SHARDS, " + young, "is refused: appendOplogNote: (Unauthorized)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.prepare != nil {
				tt.prepare()
			}
			p, found := tt.lab.check()
			if p.cmd.ProcessState.ExitCode() != 0 || found.notOK() != tt.want || !strings.Contains(fmt.Sprint(found), tt.says) {
				t.Errorf("%+v", found)
			}
		})
	}
	if n := server.Stats().OplogEntries; n != entries {
		t.Errorf("%d entries were written", n-entries)
	}
	// A mongos that does not know the command.
	old := labOn(t, "etcd", devmongotest.Start(t, devmongo.Config{Preset: "sharded"}).URI()).with("STREAMER_MONGODB_TICK=200ms")
	if _, found := old.check(); !strings.Contains(found.notOK(), "shards warn STRM-MONGODB-SHARDS") || !strings.Contains(fmt.Sprint(found), "no such cmd: appendOplogNote") {
		t.Errorf("%+v", found)
	}
}

// Images that are asked for must be kept.
func TestCheckFindsCollectionsWithoutImages(t *testing.T) {
	t.Parallel()
	server := devmongotest.Start(t, devmongo.Config{Release: "7.0"})
	l := labOn(t, "mongo", server.URI()).with("STREAMER_MONGODB_FULL_DOCUMENT=whenAvailable")
	l.create(false)
	_, found := l.check()
	if found.notOK() != "images warn STRM-MONGODB-IMAGES" || !strings.Contains(fmt.Sprint(found), l.database+".orders") {
		t.Errorf("%+v", found)
	}
	if _, found := l.with("STREAMER_MONGODB_WATCH=" + l.database + ".items").check(); found.notOK() != "namespaces warn STRM-MONGODB-MISSING" {
		t.Errorf("another collection is watched: %+v", found)
	}
	if _, found := l.with("STREAMER_MONGODB_WATCH=" + l.database + ".*").check(); found.notOK() != "images warn STRM-MONGODB-IMAGES" {
		t.Errorf("the whole database is watched: %+v", found)
	}
	before := l.with("STREAMER_MONGODB_FULL_DOCUMENT=default", "STREAMER_MONGODB_FULL_DOCUMENT_BEFORE_CHANGE=required")
	if _, found := before.check(); found.notOK() != "images warn STRM-MONGODB-IMAGES" || !strings.Contains(fmt.Sprint(found), "full_document_before_change is required") {
		t.Errorf("documents before the change: %+v", found)
	}
}

// moveMark puts a mark elsewhere in time.
func moveMark(l *lab, p change.Partition, by time.Duration) {
	l.t.Helper()
	stored := decode[map[string]any](l.t, l.store.checkpoint(p))
	at := l.stored()[p].Position.Time
	stored["position"] = map[string]any{"t": int64(at.T) + int64(by.Seconds()), "i": 1}
	l.store.setCheckpoint(p, encode(l.t, stored))
}
