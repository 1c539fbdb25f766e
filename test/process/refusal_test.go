package process

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
)

func TestBadConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	const file = "config.yaml"
	for _, tt := range []struct {
		name string
		yaml string
		env  string
		code fault.Code
		says []string
	}{
		{"unknown key", "mongodb:\n  urii: mongodb://h\n", "", fault.ConfigUnknownKey, []string{file + ":2: ", "mongodb.urii", "did you mean mongodb.uri?"}},
		{"unknown variable", "", "STREAMER_MONGODB_URL=mongodb://h", fault.ConfigUnknownKey, []string{"STREAMER_MONGODB_URL", "did you mean STREAMER_MONGODB_URI?"}},
		{"contradiction", "mongodb:\n  ring_size: 1MiB\n  prefetch: 2MiB\n", "", fault.ConfigConflict, []string{file + ":3: ", "mongodb.ring_size is 1MiB"}},
		{"contradiction with a variable", "mongodb:\n  ring_size: 8MiB\n", "STREAMER_MONGODB_PREFETCH=9MiB", fault.ConfigConflict, []string{file + ":2", "STREAMER_MONGODB_PREFETCH"}},
		{"bad value in the file", "cluster:\n  lease_ttl: 10\n", "", fault.ConfigBadValue, []string{file + ":2: ", "cluster.lease_ttl", `"10" must be a duration`}},
		{"bad value in the environment", "", "STREAMER_CLUSTER_PARTITIONS=0", fault.ConfigBadValue, []string{"STREAMER_CLUSTER_PARTITIONS", `"0" must lie between 1 and 16384`}},
		{"bad connection string", "", "STREAMER_MONGODB_URI=mongodb://h:port/", fault.ConfigBadValue, []string{"mongodb.uri"}},
		{"not YAML", "cluster: [\n", "", fault.ConfigUnreadable, []string{file}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), file)
			if err := os.WriteFile(path, []byte(tt.yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			env := []string{"STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0"}
			if tt.env != "" {
				env = append(env, tt.env)
			}
			start(t, launch{args: []string{"run", "-f", path}, env: env}).refused(tt.code, tt.says...)
		})
	}
	t.Run("no file", func(t *testing.T) {
		start(t, launch{args: []string{"run", "-f", "missing.yaml"}}).refused(fault.ConfigUnreadable, "missing.yaml")
	})
}

// What is wrong around a node is found before it touches anything, and told once.
func TestWorldThatCannotWorkIsRefusedAndLeftAsItIs(t *testing.T) {
	t.Parallel()
	closed := devmongotest.FreeAddress()
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // answers at once
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	standalone := devmongotest.Start(t, devmongo.Config{Standalone: true})

	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l, server := newDevLab(t, backend)
			use(l)
			for _, tt := range []struct {
				name     string
				settings []string
				prepare  func()
				code     fault.Code
				says     []string
			}{
				{"MongoDB unreachable", []string{
					"STREAMER_MONGODB_URI=mongodb://" + closed + "/?replicaSet=rs0", "STREAMER_MONGODB_SERVER_SELECTION_TIMEOUT=300ms",
				}, nil, fault.MongoUnreachable, []string{closed}},
				{"standalone", []string{"STREAMER_MONGODB_URI=" + standalone.URI()}, nil, fault.MongoStandalone, nil},
				{"no right to watch and to find", nil, func() { deny(l, server, "aggregate", "find") }, fault.MongoUnauthorized, nil},
				{"no right to watch", nil, func() { deny(l, server, "aggregate") }, fault.MongoUnauthorized, nil},
				{"address in use", []string{"STREAMER_HTTP_LISTEN=" + taken.Addr().String()}, nil, fault.NodeAddressInUse, []string{taken.Addr().String()}},
				{"plaintext for other machines", []string{"STREAMER_GRPC_LISTEN=:0"}, nil, fault.AccessPlaintext, []string{"plaintext"}},
				{"another number of partitions", []string{"STREAMER_CLUSTER_PARTITIONS=8"}, nil, fault.CheckpointPartitions, []string{"16 partitions, not for 8"}},
				{"a mark of another number", nil, func() { edit(l, 3, "n", 32) }, fault.CheckpointPartitions, []string{"3 was made for 32"}},
				{"a mark of a newer version", nil, func() { edit(l, 3, "v", 9) }, fault.CheckpointNewer, []string{"3 has version 9"}},
				{"all marks of a newer version", nil, func() {
					for p := range change.Partition(partitions) {
						edit(l, p, "v", 9)
					}
				}, fault.CheckpointNewer, []string{"00 has version 9"}},
				{"a corrupt origin", nil, func() { l.store.setOrigin("{}") }, fault.CheckpointCorrupt, []string{"origin"}},
				{"marks of another deployment", nil, func() { moveOrigin(l) }, fault.CheckpointSource, []string{"of replicaset/elsewhere"}},
			} {
				t.Run(tt.name, func(t *testing.T) {
					l.t = t
					defer func(before map[string]string) { l.store.restore(before) }(l.store.everything())
					if tt.prepare != nil {
						tt.prepare()
					}
					before := l.store.everything()
					l.with(tt.settings...).node().refused(tt.code, tt.says...)
					allow(l, server)
					unchanged(t, before, l.store.everything())
				})
			}
			l.t = t
		})
	}
	t.Run("etcd unreachable", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, "etcd").with("STREAMER_ETCD_ENDPOINTS="+closed, "STREAMER_ETCD_DIAL_TIMEOUT=300ms")
		l.node().refused(fault.EtcdUnreachable, closed)
		unchanged(t, map[string]string{}, l.store.everything())
	})
}

// A first start that is refused leaves nothing behind, so that the next one begins when it runs.
func TestRefusedFirstStartWritesNothing(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		l, server := newDevLab(t, backend)
		deny(l, server, "aggregate")
		l.node().refused(fault.MongoUnauthorized)
		allow(l, server)
		unchanged(t, map[string]string{}, l.store.everything())
	}
}

func TestSecondProcessOnTheSameMarksIsRefused(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, backend) // with a lease that outlives a machine that is short of breath
			use(l)
			p := start(t, launch{args: []string{"run", "-o", "json"}, env: l.settings})
			p.await(nodeRuns)
			l.with("STREAMER_NODE_ID=second").node().refused(fault.NodeRunning, `held by node "node"`)
			for p, m := range l.stored() { // the first may have saved some meanwhile
				if m.By != "node" {
					t.Errorf("the mark of partition %d is of node %q", p, m.By)
				}
			}
			l.insert(1000, 1010)
			until(t, "the first goes on", func() bool { return len(p.output.all()) == 10 })
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d of the first", code)
			}
		})
	}
}

func TestProcessThatIsTakenOverEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd")
	p := l.node()
	p.await(nodeRuns)
	successor := l.with("STREAMER_NODE_ID=second").node("--take-over")
	successor.await(nodeRuns)
	p.refused(fault.NodeTermLost)
	successor.signal(syscall.SIGTERM)
	if code := successor.wait(); code != 0 {
		t.Errorf("exit code %d of the successor", code)
	}
}

func TestMalformedPositionOfASubscriberIsRefused(t *testing.T) {
	t.Parallel()
	l, other := newLab(t, "etcd"), newLab(t, "etcd")
	p, q := l.node(), other.node()
	events := p.address() + "/v1/events"
	for name, id := range map[string]string{
		"no id": "nonsense", "not base64": "%%%", "cut off": "AQAP", "damaged": strings.Repeat("A", 66), "of another cluster": firstID(t, other, q),
	} {
		got := ask(t, events, "Last-Event-ID", id)
		said := decode[struct{ Code, Message, Remedy string }](t, got.body)
		entry, _ := fault.Lookup(fault.SessionBadPosition)
		if got.status/100 != 4 || said.Code != string(fault.SessionBadPosition) || said.Message == "" || said.Remedy != entry.Remedy {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := ask(t, events+"?table=orders"); got.status/100 != 4 || !strings.Contains(got.body, string(fault.SessionBadRequest)) {
		t.Errorf("unknown parameter: %+v", got)
	}
}

// firstID returns the id of an event of a node.
func firstID(t *testing.T, l *lab, p *process) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	j := newJournal()
	f := newFollower(p.address(), func(data string) error { j.add(data, false); return nil })
	done := make(chan struct{})
	go func() { defer close(done); f.run(ctx) }()
	defer func() { <-done }()
	defer stop()
	until(t, "the follower is connected", func() bool { return f.connected() > 0 })
	l.insert(0, 1)
	until(t, "an event arrives", func() bool { return len(j.all()) > 0 })
	return decode[struct{ ID string }](t, j.all()[0]).ID
}

// use lets a node run until every partition has a mark, and stop.
func use(l *lab) {
	l.t.Helper()
	p := start(l.t, launch{args: []string{"run", "-o", "json"}, env: l.settings})
	p.await(nodeRuns)
	l.insert(0, 500)
	until(l.t, "all events are printed", func() bool { return len(p.output.all()) == 500 })
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		l.t.Fatalf("exit code %d", code)
	}
	if n := len(l.stored()); n != partitions {
		l.t.Fatalf("%d marks", n)
	}
}

// deny lets the commands of the lab's nodes fail as they do without the right; allow ends it.
func deny(l *lab, server *devmongo.Server, commands ...string) {
	l.t.Helper()
	failPoint(l, server, "alwaysOn", bson.D{
		{Key: "failCommands", Value: commands}, {Key: "errorCode", Value: 13}, {Key: "appName", Value: "streamer " + l.cluster + "/node"},
	})
}

func allow(l *lab, server *devmongo.Server) {
	l.t.Helper()
	failPoint(l, server, "off", bson.D{})
}

func failPoint(l *lab, server *devmongo.Server, mode any, data bson.D) {
	l.t.Helper()
	command := bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: data}}
	if err := connect(l.t, server.URI()).Database("admin").RunCommand(l.t.Context(), command).Err(); err != nil {
		l.t.Fatal(err)
	}
}

// edit changes a field of a mark, or takes it away.
func edit(l *lab, p change.Partition, field string, value any) {
	l.t.Helper()
	stored := decode[map[string]any](l.t, l.store.checkpoint(p))
	if stored[field] = value; value == nil {
		delete(stored, field)
	}
	l.store.setCheckpoint(p, encode(l.t, stored))
}

// moveOrigin makes the marks those of another deployment.
func moveOrigin(l *lab) {
	l.t.Helper()
	o, err := checkpoint.DecodeOrigin("origin", 0, []byte(l.store.origin()))
	if err != nil {
		l.t.Fatal(err)
	}
	o.Source = "replicaset/elsewhere/0123456789abcdef01234567"
	value, err := checkpoint.EncodeOrigin(o)
	if err != nil {
		l.t.Fatal(err)
	}
	l.store.setOrigin(string(value))
}

// unchanged compares all that is stored.
func unchanged(t testing.TB, before, after map[string]string) {
	t.Helper()
	for key := range after {
		if _, there := before[key]; !there {
			t.Errorf("%s is new: %.300q", key, after[key])
		}
	}
	for key, value := range before {
		if after[key] != value {
			t.Errorf("%s was %.300q and is %.300q", key, value, after[key])
		}
	}
}
