package admin

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/node"
	"github.com/mongostream/streamer/internal/devmongo/profile"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// topologyCount is how often a new replica set of one changes before it serves.
const topologyCount = 6

func runHello(ctx context.Context, r *node.Request, b *doc.Builder) error {
	if client, ok := doc.Path(r.Body, "client.application.name"); ok {
		r.Client.App, _ = client.StringValueOK()
	}
	if wait, known := knowsTopology(r); known {
		if err := node.Pause(ctx, wait); err != nil {
			return err
		}
	}
	Hello(r, b)
	return nil
}

// Pushes reports whether the request wants hello replies pushed from now on, and how often.
func Pushes(r *node.Request) (time.Duration, bool) {
	if !slices.Contains([]string{"hello", "isMaster", "ismaster"}, r.Name) || r.Msg.Flags&wire.ExhaustAllowed == 0 {
		return 0, false
	}
	return knowsTopology(r)
}

// knowsTopology reports whether the client knows the topology already, and how long it would wait for another one.
func knowsTopology(r *node.Request) (time.Duration, bool) {
	ms, ok := r.Int("maxAwaitTimeMS")
	process, _ := doc.Path(r.Body, "topologyVersion.processId")
	id, same := process.ObjectIDOK()
	wait := time.Duration(ms) * time.Millisecond
	if r.HelloAwait > 0 {
		wait = min(wait, r.HelloAwait)
	}
	return wait, ok && ms > 0 && same && id == r.Process
}

func topology(r *node.Request, b *doc.Builder) {
	count := int64(topologyCount)
	if r.Standalone || r.Mongos {
		count = 0
	}
	b.Open("topologyVersion").ObjectID("processId", r.Process).Int64("counter", count).End()
}

// Hello appends the reply: its name for the primary depends on how the client asked.
func Hello(r *node.Request, b *doc.Builder) {
	primary := "ismaster"
	if r.Name == "hello" {
		primary = "isWritablePrimary"
	}
	if r.Truth("helloOk") && (r.Name == "hello" || r.Release.Since(profile.R60)) {
		b.Bool("helloOk", true)
	}
	switch {
	case r.Mongos:
		b.Bool(primary, true).String("msg", "isdbgrid")
		topology(r, b)
	case r.Standalone:
		b.Bool(primary, true)
		topology(r, b)
	default:
		replication(r, b, primary)
	}
	b.Int32("maxBsonObjectSize", store.MaxDocument).Int32("maxMessageSizeBytes", wire.MaxMessage)
	b.Int32("maxWriteBatchSize", node.MaxWriteBatch).Date("localTime", r.Oplog.Now().UnixMilli())
	b.Int32("logicalSessionTimeoutMinutes", node.SessionMinutes).Int32("connectionId", r.Client.ID)
	b.Int32("minWireVersion", 0).Int32("maxWireVersion", r.Release.WireVersion()).Bool("readOnly", false)
}

// replication appends what hello and serverStatus say of the replica set.
func replication(r *node.Request, b *doc.Builder, primary string) {
	topology(r, b)
	b.Strings("hosts", append([]string{r.Addr}, r.Members...)...).String("setName", node.SetName).Int32("setVersion", 1)
	b.Bool(primary, r.Primary == "").Bool("secondary", r.Primary != "").String("primary", cmp.Or(r.Primary, r.Addr)).String("me", r.Addr)
	if r.Primary == "" {
		b.ObjectID("electionId", node.ElectionID())
	}
	applied, committed := r.Oplog.Applied(), r.Oplog.Committed()
	b.Open("lastWrite")
	node.OpTime(b, "opTime", applied)
	b.Date("lastWriteDate", seconds(applied))
	node.OpTime(b, "majorityOpTime", committed)
	b.Date("majorityWriteDate", seconds(committed)).End()
}

// seconds is a cluster time as a date.
func seconds(ts uint64) int64 { return int64(ts>>32) * 1000 }

func runPing(context.Context, *node.Request, *doc.Builder) error { return nil }

func version(release profile.Release) (string, [4]int32) {
	major, minor, _ := strings.Cut(string(release), ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	return string(release) + ".0", [4]int32{int32(a), int32(b), 0, 0}
}

func runBuildInfo(_ context.Context, r *node.Request, b *doc.Builder) error {
	text, parts := version(r.Release)
	b.String("version", text).String("gitVersion", "devmongo").OpenArray("modules").End()
	b.String("allocator", "go").String("javascriptEngine", "none").String("sysInfo", "deprecated").OpenArray("versionArray")
	for i, n := range parts {
		b.Int32(doc.Index(i), n)
	}
	b.End().Open("openssl").String("running", "disabled").String("compiled", "disabled").End()
	b.Int32("bits", 64).Bool("debug", false).Int32("maxBsonObjectSize", store.MaxDocument).Strings("storageEngines", "devmongo")
	return nil
}

func runGetParameter(_ context.Context, r *node.Request, b *doc.Builder) error {
	known := false
	for name := range doc.All(r.Body) {
		switch name {
		case "featureCompatibilityVersion":
			b.Open(name).String("version", string(r.Release)).End()
			known = true
		case "enableTestCommands":
			b.Bool(name, true)
			known = true
		}
	}
	if !known {
		return fault.New(fault.InvalidOptions, "no option found to get")
	}
	return nil
}

func runGetCmdLineOpts(_ context.Context, _ *node.Request, b *doc.Builder) error {
	b.Strings("argv", "devmongo").Open("parsed").End()
	return nil
}

func runConnectionStatus(_ context.Context, r *node.Request, b *doc.Builder) error {
	b.Open("authInfo").OpenArray("authenticatedUsers").End().OpenArray("authenticatedUserRoles").End()
	if r.Truth("showPrivileges") {
		b.OpenArray("authenticatedUserPrivileges").End()
	}
	b.End()
	return nil
}

func runWhatsMyURI(_ context.Context, r *node.Request, b *doc.Builder) error {
	b.String("you", r.Client.Remote)
	return nil
}
