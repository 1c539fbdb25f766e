package devmongo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/store"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

func runServerStatus(_ context.Context, r *request, b *doc.Builder) error {
	up := time.Since(r.started)
	text, _ := version(r.profile.Release)
	st := r.Stats()
	b.String("host", r.addr).String("version", text).String("process", "devmongo").Double("uptime", up.Seconds())
	b.Int64("uptimeMillis", up.Milliseconds()).Date("localTime", r.oplog.Now().UnixMilli())
	b.Open("connections").Int32("current", int32(st.ConnectionsOpen)).Int32("totalCreated", int32(r.counters.connections.Load())).End()
	b.Open("logicalSessionRecordCache").Int32("activeSessionsCount", int32(r.sessions.Count())).End()
	if !r.config.Standalone && !r.profile.Mongos {
		if r.truth("oplog") {
			first, _ := r.oplog.First()
			b.Open("oplog").Timestamp("latestOptime", r.oplog.Applied()).Timestamp("earliestOptime", first.TS).End()
		}
		b.Open("repl")
		primary := "ismaster"
		if r.profile.Release.Since(oplog.R60) {
			primary = "isWritablePrimary"
		}
		replication(r, b, primary)
		b.Int32("rbid", 1).End()
	}
	b.Open("storageEngine").String("name", "devmongo").Bool("supportsCommittedReads", true).Bool("persistent", r.config.Snapshot != "").End()
	st.append(b)
	return nil
}

func needSet(r *request) error {
	if r.profile.Mongos {
		return wire.Errorf(0, "%s is not supported through mongos", r.name)
	}
	if r.config.Standalone {
		return wire.Errorf(76, "not running with --replSet")
	}
	return nil
}

func runReplSetGetStatus(_ context.Context, r *request, b *doc.Builder) error {
	if err := needSet(r); err != nil {
		return err
	}
	now := r.oplog.Now().UnixMilli()
	applied, committed := r.oplog.Applied(), r.oplog.Committed()
	b.String("set", setName).Date("date", now).Int32("myState", 1).Int64("term", 1).String("syncSourceHost", "").Int32("syncSourceId", -1)
	b.Int64("heartbeatIntervalMillis", 2000).Int32("majorityVoteCount", 1).Int32("writeMajorityCount", 1)
	b.Int32("votingMembersCount", 1).Int32("writableVotingMembersCount", 1)
	b.Open("optimes")
	opTime(b, "lastCommittedOpTime", committed)
	b.Date("lastCommittedWallTime", seconds(committed))
	opTime(b, "readConcernMajorityOpTime", committed)
	b.Date("readConcernMajorityWallTime", seconds(committed))
	opTime(b, "appliedOpTime", applied)
	opTime(b, "durableOpTime", applied)
	b.Date("lastAppliedWallTime", seconds(applied)).Date("lastDurableWallTime", seconds(applied)).End()
	b.OpenArray("members").Open("0").Int32("_id", 0).String("name", r.addr).Double("health", 1).Int32("state", 1)
	b.String("stateStr", "PRIMARY").Int32("uptime", int32(time.Since(r.started).Seconds()))
	opTime(b, "optime", applied)
	b.Date("optimeDate", seconds(applied)).String("syncSourceHost", "").Int32("syncSourceId", -1).String("infoMessage", "")
	b.Int32("configVersion", 1).Int32("configTerm", 1).Bool("self", true).String("lastHeartbeatMessage", "").End().End()
	return nil
}

func runReplSetGetConfig(_ context.Context, r *request, b *doc.Builder) error {
	if err := needSet(r); err != nil {
		return err
	}
	b.Open("config").String("_id", setName).Int32("version", 1).Int32("term", 1)
	b.OpenArray("members").Open("0").Int32("_id", 0).String("host", r.addr).Double("priority", 1).Int32("votes", 1).End().End()
	b.Open("settings").ObjectID("replicaSetId", r.set).End().End()
	return nil
}

func runCollStats(_ context.Context, r *request, b *doc.Builder) error {
	if isOplog(r.ns) && !r.config.Standalone {
		entries, bytes := r.oplog.Size()
		b.String("ns", r.ns.String()).Number("size", bytes).Number("count", entries).Number("avgObjSize", bytes/entries)
		b.Number("storageSize", bytes).Bool("capped", true).Int32("max", -1).Number("maxSize", r.oplog.MaxBytes())
		b.Int32("nindexes", 0).Number("totalIndexSize", 0).Number("totalSize", bytes).Int32("scaleFactor", 1)
		return nil
	}
	c, _ := r.store.Collection(r.ns)
	b.String("ns", r.ns.String()).Number("size", c.Bytes).Number("count", c.Count)
	if c.Count > 0 {
		b.Number("avgObjSize", c.Bytes/c.Count)
	}
	b.Number("storageSize", c.Bytes).Bool("capped", false).Int32("nindexes", int32(len(c.Indexes)))
	b.Number("totalIndexSize", 0).Number("totalSize", c.Bytes).Int32("scaleFactor", 1)
	return nil
}

// topologyCount is how often a new replica set of one changes before it serves.
const topologyCount = 6

func runHello(ctx context.Context, r *request, b *doc.Builder) error {
	if client, ok := doc.Path(r.body, "client.application.name"); ok {
		r.client.app, _ = client.StringValueOK()
	}
	if wait, known := knowsTopology(r); known {
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
	hello(r, b)
	r.introduce(b)
	return nil
}

// pushes reports whether the request wants hello replies pushed from now on, and how often.
func pushes(r *request) (time.Duration, bool) {
	if !slices.Contains([]string{"hello", "isMaster", "ismaster"}, r.name) || r.msg.Flags&wire.ExhaustAllowed == 0 {
		return 0, false
	}
	return knowsTopology(r)
}

// knowsTopology reports whether the client knows the topology already, and how long it would wait
// for another one.
func knowsTopology(r *request) (time.Duration, bool) {
	ms, ok := r.int("maxAwaitTimeMS")
	process, _ := doc.Path(r.body, "topologyVersion.processId")
	id, same := process.ObjectIDOK()
	wait := time.Duration(ms) * time.Millisecond
	if r.config.HelloAwait > 0 {
		wait = min(wait, r.config.HelloAwait)
	}
	return wait, ok && ms > 0 && same && id == r.process
}

func topology(r *request, b *doc.Builder) {
	count := int64(topologyCount)
	if r.config.Standalone || r.profile.Mongos {
		count = 0
	}
	b.Open("topologyVersion").ObjectID("processId", r.process).Int64("counter", count).End()
}

// hello appends the reply: its name for the primary depends on how the client asked.
func hello(r *request, b *doc.Builder) {
	primary := "ismaster"
	if r.name == "hello" {
		primary = "isWritablePrimary"
	}
	if r.truth("helloOk") && (r.name == "hello" || r.profile.Release.Since(oplog.R60)) {
		b.Bool("helloOk", true)
	}
	switch {
	case r.profile.Mongos:
		b.Bool(primary, true).String("msg", "isdbgrid")
		topology(r, b)
	case r.config.Standalone:
		b.Bool(primary, true)
		topology(r, b)
	default:
		replication(r, b, primary)
	}
	b.Int32("maxBsonObjectSize", store.MaxDocument).Int32("maxMessageSizeBytes", wire.MaxMessage)
	b.Int32("maxWriteBatchSize", maxWriteBatch).Date("localTime", r.oplog.Now().UnixMilli())
	b.Int32("logicalSessionTimeoutMinutes", sessionMinutes).Int32("connectionId", r.client.id)
	b.Int32("minWireVersion", 0).Int32("maxWireVersion", r.profile.Release.WireVersion()).Bool("readOnly", false)
}

// replication appends what hello and serverStatus say of the replica set.
func replication(r *request, b *doc.Builder, primary string) {
	topology(r, b)
	b.Strings("hosts", append([]string{r.addr}, r.config.Members...)...).String("setName", setName).Int32("setVersion", 1)
	b.Bool(primary, r.config.Primary == "").Bool("secondary", r.config.Primary != "").String("primary", cmp.Or(r.config.Primary, r.addr)).String("me", r.addr)
	if r.config.Primary == "" {
		b.ObjectID("electionId", electionID())
	}
	applied, committed := r.oplog.Applied(), r.oplog.Committed()
	b.Open("lastWrite")
	opTime(b, "opTime", applied)
	b.Date("lastWriteDate", seconds(applied))
	opTime(b, "majorityOpTime", committed)
	b.Date("majorityWriteDate", seconds(committed)).End()
}

// seconds is a cluster time as a date.
func seconds(ts uint64) int64 { return int64(ts>>32) * 1000 }

func runPing(context.Context, *request, *doc.Builder) error { return nil }

func version(release oplog.Release) (string, [4]int32) {
	major, minor, _ := strings.Cut(string(release), ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	return string(release) + ".0", [4]int32{int32(a), int32(b), 0, 0}
}

func runBuildInfo(_ context.Context, r *request, b *doc.Builder) error {
	text, parts := version(r.profile.Release)
	b.String("version", text).String("gitVersion", "devmongo").OpenArray("modules").End()
	b.String("allocator", "go").String("javascriptEngine", "none").String("sysInfo", "deprecated").OpenArray("versionArray")
	for i, n := range parts {
		b.Int32(doc.Index(i), n)
	}
	b.End().Open("openssl").String("running", "disabled").String("compiled", "disabled").End()
	b.Int32("bits", 64).Bool("debug", false).Int32("maxBsonObjectSize", store.MaxDocument).Strings("storageEngines", "devmongo")
	return nil
}

func runGetParameter(_ context.Context, r *request, b *doc.Builder) error {
	known := false
	for name := range doc.All(r.body) {
		switch name {
		case "featureCompatibilityVersion":
			b.Open(name).String("version", string(r.profile.Release)).End()
			known = true
		case "enableTestCommands":
			b.Bool(name, true)
			known = true
		}
	}
	if !known {
		return wire.Errorf(wire.InvalidOptions, "no option found to get")
	}
	return nil
}

func runGetCmdLineOpts(_ context.Context, _ *request, b *doc.Builder) error {
	b.Strings("argv", "devmongo").Open("parsed").End()
	return nil
}

func runConnectionStatus(_ context.Context, r *request, b *doc.Builder) error {
	b.Open("authInfo")
	r.knows(b)
	b.OpenArray("authenticatedUserRoles").End()
	if r.truth("showPrivileges") {
		b.OpenArray("authenticatedUserPrivileges").End()
	}
	b.End()
	return nil
}

func runWhatsMyURI(_ context.Context, r *request, b *doc.Builder) error {
	b.String("you", r.client.remote)
	return nil
}

func runConfigureFailPoint(_ context.Context, r *request, b *doc.Builder) error {
	if r.db != "admin" {
		return wire.Errorf(wire.Unauthorized, "configureFailPoint may only be run against the admin database.")
	}
	count, err := r.points.configure(r.body)
	if err != nil {
		return err
	}
	b.Int32("count", int32(count))
	return nil
}

func runStartSession(_ context.Context, r *request, b *doc.Builder) error {
	id := store.NewUUID()
	lsid := doc.New().Binary("id", 4, id[:]).Document()
	if _, err := r.sessions.Get(bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: lsid}); err != nil {
		return err
	}
	b.Doc("id", lsid).Int32("timeoutMinutes", sessionMinutes)
	return nil
}

func runEndSessions(_ context.Context, r *request, _ *doc.Builder) error {
	if r.arg.Type != bsoncore.TypeArray {
		return wire.Errorf(wire.TypeMismatch, "BSON field '%s' is the wrong type '%s', expected type 'array'", r.name, doc.TypeName(r.arg.Type))
	}
	r.sessions.End(slices.Collect(doc.Values(r.arg.Data)))
	return nil
}

func runCommit(_ context.Context, r *request, _ *doc.Builder) error {
	if !r.inTxn {
		return wire.Errorf(125, "commitTransaction must be run within a transaction")
	}
	return r.session.Commit(r.number)
}

func runAbort(_ context.Context, r *request, _ *doc.Builder) error {
	if !r.inTxn {
		return wire.Errorf(125, "abortTransaction must be run within a transaction")
	}
	return r.session.Abort(r.number)
}

// runAppendOplogNote writes an entry that changes nothing: a router to the log of every shard. With
// maxClusterTime a log that is at that time already is left as it is. Routers know the command
// since 4.2.23, 4.4.17, 5.0.12 and 6.0.
func runAppendOplogNote(_ context.Context, r *request, b *doc.Builder) error {
	switch {
	case r.profile.Mongos && !r.profile.Release.Since(oplog.R60):
		return wire.Errorf(wire.CommandNotFound, "no such cmd: %s", r.name)
	case r.db != "admin":
		return wire.Errorf(wire.Unauthorized, "%s may only be run against the admin database.", r.name)
	case r.config.Standalone:
		return wire.Errorf(wire.NoReplicationEnabled, "Must have replication set up to run \"appendOplogNote\"")
	}
	var until uint64
	if v, ok := r.field("maxClusterTime"); ok {
		until = query.Timestamp(v)
	}
	data, err := r.document("data")
	if err == nil && data == nil {
		err = wire.Errorf(wire.NoSuchKey, "Missing expected field \"data\"")
	}
	if r.oplog.Shards() > 0 {
		return note(r, b, data, until, err)
	}
	switch {
	case err != nil:
		return err
	case until > 0 && r.oplog.Applied() >= until:
		return stale(until)
	}
	r.oplog.Note(data)
	return nil
}

func stale(until uint64) error {
	return wire.Errorf(wire.StaleClusterTime, "Requested maxClusterTime %d is less or equal to the last primary OpTime", until)
}

// note appends the answer of each shard, and fails if one has failed.
func note(r *request, b *doc.Builder, data bsoncore.Document, until uint64, refused error) error {
	raw := doc.New().Open("raw")
	failure := refused
	for shard := range r.oplog.Shards() {
		err := refused
		if err == nil && !r.oplog.NoteOn(shard, data, until) {
			err = stale(until)
		}
		raw.Open(fmt.Sprintf("sh%d/%s", shard, r.addr))
		if err == nil {
			raw.Double("ok", 1)
		} else {
			e := wire.ErrorOf(err)
			failure = e
			raw.Double("ok", 0).String("errmsg", e.Message).Int32("code", int32(e.Code)).String("codeName", e.Code.Name())
		}
		raw.End()
	}
	answers := raw.End().Bytes()
	if failure == nil {
		b.Raw(elements(answers))
		return nil
	}
	e := *wire.ErrorOf(failure)
	e.Extra = elements(answers)
	return &e
}
