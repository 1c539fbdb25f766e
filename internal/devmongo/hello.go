package devmongo

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

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
	return nil
}

// pushes reports whether the request wants hello replies pushed from now on, and how often.
func pushes(r *request) (time.Duration, bool) {
	if !slices.Contains([]string{"hello", "isMaster", "ismaster"}, r.name) || r.msg.Flags&wire.ExhaustAllowed == 0 {
		return 0, false
	}
	return knowsTopology(r)
}

// knowsTopology reports whether the client knows the topology already, and how long it would wait for another one.
func knowsTopology(r *request) (time.Duration, bool) {
	ms, ok := r.int("maxAwaitTimeMS")
	process, _ := doc.Path(r.body, "topologyVersion.processId")
	id, same := process.ObjectIDOK()
	wait := time.Duration(ms) * time.Millisecond
	if r.helloAwait > 0 {
		wait = min(wait, r.helloAwait)
	}
	return wait, ok && ms > 0 && same && id == r.process
}

func topology(r *request, b *doc.Builder) {
	count := int64(topologyCount)
	if r.standalone || r.Mongos {
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
	if r.truth("helloOk") && (r.name == "hello" || r.release.Since(oplog.R60)) {
		b.Bool("helloOk", true)
	}
	switch {
	case r.Mongos:
		b.Bool(primary, true).String("msg", "isdbgrid")
		topology(r, b)
	case r.standalone:
		b.Bool(primary, true)
		topology(r, b)
	default:
		replication(r, b, primary)
	}
	b.Int32("maxBsonObjectSize", store.MaxDocument).Int32("maxMessageSizeBytes", wire.MaxMessage)
	b.Int32("maxWriteBatchSize", maxWriteBatch).Date("localTime", r.oplog.Now().UnixMilli())
	b.Int32("logicalSessionTimeoutMinutes", sessionMinutes).Int32("connectionId", r.client.id)
	b.Int32("minWireVersion", 0).Int32("maxWireVersion", r.release.WireVersion()).Bool("readOnly", false)
}

// replication appends what hello and serverStatus say of the replica set.
func replication(r *request, b *doc.Builder, primary string) {
	topology(r, b)
	b.Strings("hosts", append([]string{r.addr}, r.members...)...).String("setName", setName).Int32("setVersion", 1)
	b.Bool(primary, r.primary == "").Bool("secondary", r.primary != "").String("primary", cmp.Or(r.primary, r.addr)).String("me", r.addr)
	if r.primary == "" {
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
	text, parts := version(r.release)
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
			b.Open(name).String("version", string(r.release)).End()
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
	b.Open("authInfo").OpenArray("authenticatedUsers").End().OpenArray("authenticatedUserRoles").End()
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
