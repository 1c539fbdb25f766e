//go:build s3

package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"gopkg.in/yaml.v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	devversity "github.com/mongostream/streamer/dev/versity"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/internal/s3"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/retention"
)

// A siege is three nodes that retain their log in a bucket of versitygw, whose disk is small.
type siege struct {
	*fleet

	store  *devversity.Server
	disk   string
	bucket *s3.Bucket
	chain  *retention.Chain
}

// newSiege starts the store and the nodes, and waits until there is a chain.
func newSiege(t *testing.T) *siege {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=24m"); err != nil {
		t.Fatalf("make a small disk, which needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	store, err := devversity.Start(os.Getenv("STREAMER_TEST_VERSITYGW"), disk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	t.Setenv("AWS_ACCESS_KEY_ID", devversity.Access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", devversity.Secret)
	url := store.URL("three/nodes")
	bucket, err := s3.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	f := newFleet(t, "etcd", 3, "STREAMER_RETENTION_STORE="+url, "STREAMER_RETENTION_INTERVAL=1s",
		"AWS_ACCESS_KEY_ID="+devversity.Access, "AWS_SECRET_ACCESS_KEY="+devversity.Secret)
	s := &siege{fleet: f, store: store, disk: disk, bucket: bucket}
	s.begin()
	return s
}

// head returns the end of the chain, of which there may be none while the store does not answer.
func (s *siege) head() (head retention.Head) {
	if s.chain == nil {
		if chains, err := s.bucket.Chains(s.t.Context()); err == nil && len(chains) == 1 {
			s.chain = retention.ChainAt(s.bucket, chains[0])
		}
	}
	if s.chain != nil {
		head, _, _ = s.chain.Head(s.t.Context()) // it is asked again
	}
	return head
}

// grows waits until the chain has more segments than it had, by another node than one of them.
func (s *siege) grows(what string, by uint64, not string) retention.Head {
	s.t.Helper()
	from, head := s.head().Number, retention.Head{}
	until(s.t, what, func() bool {
		head = s.head()
		return head.Number >= from+by && head.Writer != not
	})
	return head
}

// writer returns the node that wrote the head.
func (s *siege) writer() *ship {
	s.t.Helper()
	name := s.head().Writer
	for _, ship := range s.ships {
		if ship.name == name {
			return ship
		}
	}
	s.t.Fatalf("the chain was written by %q", name)
	return nil
}

// failures waits until some node's writer has failed, and delivery has gone on meanwhile.
func (s *siege) failures(what string, since time.Time) {
	s.t.Helper()
	until(s.t, what, func() bool {
		text := ask(s.t, s.ships[0].url()+"/health").body + ask(s.t, s.ships[1].url()+"/health").body + ask(s.t, s.ships[2].url()+"/health").body
		return strings.Contains(text, "STRM-RETENTION-")
	})
	failed := time.Now()
	until(s.t, "delivery continues meanwhile", func() bool { return len(s.between(failed, failed, time.Now())) > 100 })
	s.t.Logf("%s: a problem after %v", what, failed.Sub(since).Round(time.Millisecond))
}

// The writer is killed, then the store, the writer is frozen past a take-over, the store stands
// still, and its disk is full: the chain and its losses are what was written, in its order and
// once, and delivery has gone on.
func TestVersityChainSurvivesItsWriterAndItsStore(t *testing.T) {
	s := newSiege(t)
	stop := s.write(200)
	until(t, "there is a chain", func() bool { return s.head().Number >= 3 })

	victim := s.writer()
	victim.signal(syscall.SIGKILL)
	head := s.grows("another node takes over from a killed one", 2, victim.name)
	t.Logf("%s took over from %s at segment %d", head.Writer, victim.name, head.Number)
	victim.wait()
	victim.launch()

	killed := time.Now()
	s.store.Kill()
	s.failures("the store was killed", killed)
	if err := s.store.Restart(); err != nil {
		t.Fatal(err)
	}
	s.grows("the chain grows after the store came back", 2, "")

	frozen := s.writer()
	frozen.signal(syscall.SIGSTOP)
	head = s.grows("another node takes over from a frozen one", 2, frozen.name)
	t.Logf("%s took over from %s at segment %d", head.Writer, frozen.name, head.Number)
	frozen.signal(syscall.SIGCONT)
	s.grows("the chain grows after the frozen one continued", 3, "")

	if err := s.store.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stood := time.Now()
	until(t, "delivery continues while the store stands still", func() bool { return len(s.between(stood, stood, time.Now())) > 300 })
	if err := s.store.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.grows("the chain grows after the store continued", 2, "")

	full, filler := time.Now(), filepath.Join(s.disk, "filler")
	fillDisk(t, filler)
	s.failures("the disk is full", full)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s.grows("the chain grows after the disk has room", 3, "")

	last := s.now()
	until(t, "the chain has all of it", func() bool { return s.head().To.Compare(last) > 0 })
	stop()
	s.judge()
	s.judgeChain()
	if text := s.lab.result("retention", "verify"); !strings.Contains(text, ": 0 faults") {
		t.Errorf("verify says %s", text)
	}
}

// fillDisk fills a disk with a file.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 4096)
	for err == nil {
		_, err = io.WriteString(w, strings.Repeat("x", 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	_ = f.Close()
}

// now returns MongoDB's cluster time.
func (s *siege) now() change.Timestamp {
	s.t.Helper()
	var reply struct {
		OperationTime bson.Timestamp `bson:"operationTime"`
	}
	err := s.lab.client.Database(s.lab.database).RunCommand(s.t.Context(), bson.D{{Key: "ping", Value: 1}}).Decode(&reply)
	if err != nil {
		s.t.Fatal(err)
	}
	return change.Timestamp{T: reply.OperationTime.T, I: reply.OperationTime.I}
}

// An emptied log has lost everything: what is read then comes from the chain alone.
type emptied struct{}

func (emptied) Open(context.Context, change.Position) (oplog.Stream, error) {
	return nil, &oplog.LostError{First: change.Timestamp{T: 1 << 31}, Err: errors.New("emptied")}
}

// judgeChain reads the chain back, and a change stream of the same stretch, and compares them.
func (s *siege) judgeChain() {
	s.t.Helper()
	extent, err := s.chain.Extent(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	got, losses := s.chained(extent)
	want := s.streamed(extent)
	s.t.Logf("%d changes from %s to %s in the chain, %d in MongoDB, %d losses", len(got), extent.From, extent.To, len(want), len(losses))
	if len(want) < 1000 {
		s.t.Errorf("only %d changes were written", len(want))
	}
	for _, l := range losses {
		s.t.Errorf("a loss of what the oplog has: %s to %s, %s", l.From, l.To, l.Reason)
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			s.t.Fatalf("change %d differs: %v in the chain, %v in MongoDB", i, got[i:min(len(got), i+3)], want[i:min(len(want), i+3)])
		}
	}
}

// identity names a change: its time, place, operation and document.
func identity(raw bson.Raw) string {
	t, i := raw.Lookup("clusterTime").Timestamp()
	return fmt.Sprintf("%d.%d %s %s %s", t, i, raw.Lookup("operationType"), raw.Lookup("ns"), raw.Lookup("documentKey"))
}

// chained returns the changes and losses of the chain.
func (s *siege) chained(extent retention.Extent) (all []string, losses []oplog.Loss) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	source := retention.NewSource(retention.SourceConfig{
		Reach: func(context.Context) (gap.Reach, error) { return gap.Reach{}, errors.New("emptied") },
	}, emptied{}, func() *retention.Chain { return s.chain })
	stream, err := source.Open(ctx, change.At(extent.From))
	if err != nil {
		s.t.Fatal(err)
	}
	defer stream.Close()
	for {
		reply, err := stream.Next(ctx)
		if errors.Is(err, oplog.ErrPositionLost) { // its end
			return all, losses
		} else if err != nil {
			s.t.Fatal(err)
		}
		if reply.Loss != nil {
			losses = append(losses, *reply.Loss)
		}
		for _, e := range reply.Events {
			all = append(all, identity(e))
		}
	}
}

// streamed returns the changes of a change stream of the same stretch.
func (s *siege) streamed(extent retention.Extent) (all []string) {
	s.t.Helper()
	from := bson.Timestamp{T: extent.From.T, I: extent.From.I}
	stream, err := s.lab.client.Watch(s.t.Context(), mongo.Pipeline{}, options.ChangeStream().SetStartAtOperationTime(&from).SetMaxAwaitTime(100*time.Millisecond))
	if err != nil {
		s.t.Fatal(err)
	}
	defer stream.Close(context.Background())
	for idle := 0; idle < 5; {
		if !stream.TryNext(s.t.Context()) {
			idle++
			if err := stream.Err(); err != nil {
				s.t.Fatal(err)
			}
			continue
		}
		idle = 0
		t, i := stream.Current.Lookup("clusterTime").Timestamp()
		if extent.To.Compare(change.Timestamp{T: t, I: i}) <= 0 {
			return all
		}
		all = append(all, identity(stream.Current))
	}
	return all
}

// The nodes of deploy/compose.yaml, with the command and the environment that it gives to them and
// to its bucket, share a retained log: only the addresses are others.
func TestVersityHasTheLogOfTheComposition(t *testing.T) {
	text, err := os.ReadFile("../../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var composed struct {
		Services map[string]struct{ Command, Environment yaml.Node }
	}
	if err := yaml.Unmarshal(text, &composed); err != nil {
		t.Fatal(err)
	}
	l, address, root := newLab(t, "etcd"), devmongotest.FreeAddress(), t.TempDir()
	places := strings.NewReplacer(
		"mongodb://mongodb:27017/?replicaSet=rs0", l.uri, "http://etcd-1:2379,http://etcd-2:2379,http://etcd-3:2379", strings.Join(l.store.(*etcdStore).endpoints, ","),
		"bucket:7070", address, ":7070", address, "/buckets", root,
	)
	environment := func(service string) (env []string) {
		var all map[string]string
		node := composed.Services[service].Environment
		if err := node.Decode(&all); err != nil || len(all) == 0 {
			t.Fatalf("%s has the environment %v, %v", service, all, err)
		}
		for name, value := range all {
			env = append(env, name+"="+places.Replace(value))
			if strings.HasPrefix(name, "AWS_") {
				t.Setenv(name, value) // for the test's own access
			}
		}
		return env
	}
	var command []string
	node := composed.Services["bucket"].Command
	if err := errors.Join(node.Decode(&command), os.Mkdir(filepath.Join(root, devversity.Bucket), 0o700)); err != nil {
		t.Fatal(err)
	}
	for i := range command {
		command[i] = places.Replace(command[i])
	}
	start(t, launch{program: os.Getenv("STREAMER_TEST_VERSITYGW"), args: command, env: environment("bucket")})
	for _, service := range []string{"streamer-1", "streamer-2", "streamer-3"} {
		here := l.with(environment(service)...).with("STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0")
		here.node().address()
	}
	bucket, err := s3.Open("s3://" + devversity.Bucket + "/streamer?endpoint=http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	s := &siege{fleet: &fleet{t: t, lab: l}, bucket: bucket}
	ids := 0
	until(t, "the log goes on beyond its first segment", func() bool {
		l.insert(ids, ids+1)
		ids++
		return s.head().Number > 1
	})
}

// What is wrong with a bucket has its code on the node's page, and keeps no node from its start.
func TestVersityNodesStartWithoutTheirBucket(t *testing.T) {
	store, err := devversity.Start(os.Getenv("STREAMER_TEST_VERSITYGW"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	url := store.URL("x")
	for name, c := range map[string]struct {
		url, secret string
		want        fault.Code
	}{
		"no bucket":      {strings.Replace(url, devversity.Bucket, "nowhere", 1), devversity.Secret, fault.RetentionBucket},
		"another region": {url + "&region=eu-central-1", devversity.Secret, fault.RetentionRegion},
		"another key":    {url, "wrong-" + devversity.Secret, fault.RetentionForbidden},
		"nobody there":   {strings.Replace(url, store.Address(), "127.0.0.1:1", 1), devversity.Secret, fault.RetentionUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "mongo").with("STREAMER_RETENTION_STORE="+c.url, "STREAMER_RETENTION_INTERVAL=1s", "AWS_ACCESS_KEY_ID="+devversity.Access, "AWS_SECRET_ACCESS_KEY="+c.secret)
			p := l.node()
			address := p.address()
			l.insert(0, 10)
			until(t, "it is ready", func() bool { return ask(t, address+"/readyz").status == http.StatusOK })
			until(t, "it says what is wrong", func() bool { return strings.Contains(ask(t, address+"/health").body, string(c.want)) })
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			for _, line := range append(p.output.all(), p.notes.all()...) {
				if strings.Contains(line, c.secret) {
					t.Errorf("the secret is shown: %s", line)
				}
			}
		})
	}
}
