package process

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/dev/workload"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/notice"
)

// gatewayVariable makes a gateway of the test binary, which is told where its node is; gatewayStart
// says where it begins.
const (
	gatewayVariable = "STREAMER_TEST_GATEWAY"
	gatewayStart    = "STREAMER_TEST_GATEWAY_START"
)

// runGateway is a gateway's main function: it prints every change that it has handled, and every
// loss that it was told of, as a line.
func runGateway(address string) error {
	start := client.StartResume
	if os.Getenv(gatewayStart) == "now" {
		start = client.StartNow
	}
	var printing sync.Mutex
	emit := func(line []byte) error {
		printing.Lock()
		defer printing.Unlock()
		_, err := os.Stdout.Write(append(line, '\n'))
		return err
	}
	c, err := client.New(client.Config{
		Addresses: []string{address}, Subscriber: "g", Start: start, MaxReconnectWait: 200 * time.Millisecond,
		OnNotice: func(_ context.Context, n client.Notice) error {
			switch n.(type) {
			case client.Resync, client.Rewound, client.Rejected, client.Connected:
				line, err := json.Marshal(map[string]any{"notice": fmt.Sprintf("%T", n), "told": n})
				if err != nil {
					return err
				}
				return emit(line)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	err = c.Subscribe(client.Subscription{ID: "all", DB: os.Getenv("STREAMER_TEST_DATABASE"), Format: client.JSON}, func(_ context.Context, change client.Change) error {
		return emit(change.Data)
	})
	if err != nil {
		return err
	}
	return c.Run(context.Background())
}

// Nodes and gateways are killed at random moments, alone and together. What the gateway's handler
// has seen is everything, in the order of each document; nothing is repeated in another order, and
// nobody is told of a loss, because there is none.
func TestKilledNodesAndGatewaysMissNothing(t *testing.T) {
	t.Parallel()
	kills := 20
	if raced { // each kill takes several times as long
		kills = 5
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	address := devmongotest.FreeAddress()
	l := newLab(t, "etcd").with("STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=200ms", "STREAMER_GRPC_LISTEN="+address)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var ledger workload.Ledger
	check := workload.NewCheck(&ledger)
	line := func(text string) {
		if strings.HasPrefix(text, `{"notice":`) {
			if !strings.Contains(text, "client.Connected") {
				t.Errorf("told: %s", text)
			}
			return
		}
		if err := check.JSON([]byte(text), time.Now()); err != nil {
			t.Error(err)
		}
	}
	node := func() *process {
		p := start(t, launch{args: []string{"run", "--take-over"}, env: l.settings})
		p.await(nodeRuns)
		return p
	}
	connected := make(chan struct{}, 100)
	gateway := func(from string) *process {
		return start(t, launch{
			program: self, env: []string{gatewayVariable + "=" + address, gatewayStart + "=" + from, "STREAMER_TEST_DATABASE=" + l.database},
			line: func(text string) {
				if strings.Contains(text, "client.Connected") {
					connected <- struct{}{}
				}
				line(text)
			},
		})
	}
	n, g := node(), gateway("now")
	<-connected
	writing, stopWriting := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := workload.NewWriter(workload.Config{URI: l.uri, DB: l.database, Rate: 1000}, &ledger).Run(writing); err != nil {
			t.Error(err)
		}
	})
	defer writer.Wait()
	defer stopWriting()
	for kill := range kills {
		before, _ := check.Delivered()
		more := 50 + random.IntN(800)
		until(t, fmt.Sprintf("events come before kill %d", kill), func() bool { now, _ := check.Delivered(); return now >= before+more })
		victims := 1 + random.IntN(3)
		if victims&1 != 0 {
			n.signal(syscall.SIGKILL)
		}
		if victims&2 != 0 {
			g.signal(syscall.SIGKILL)
			<-g.ended
			g = gateway("row")
		}
		if victims&1 != 0 {
			<-n.ended
			n = node()
		}
	}
	until(t, "enough has come", func() bool { n, _ := check.Delivered(); return n >= 1000 })
	stopWriting()
	writer.Wait()
	until(t, "everything has come", func() bool { return check.Missing() == 0 })
	if r := check.Report(); r.OutOfOrder > 0 || r.Written < 1000 {
		t.Errorf("%+v", r)
	} else {
		t.Logf("%+v", r)
	}
	g.signal(syscall.SIGKILL)
	<-g.ended
	n.signal(syscall.SIGTERM)
	if code := n.wait(); code != 0 {
		t.Errorf("exit code %d of the planned stop at the end", code)
	}
}

// call connects a subscriber, which sends nothing more. cut breaks the connection without a word.
func (f *fleet) call(address, subscriber string) (cut func()) {
	f.t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	cut = func() { _ = conn.Close() }
	f.t.Cleanup(cut)
	stream, err := streampb.NewGatewayClient(conn).Connect(f.t.Context(), grpc.WaitForReady(true))
	if err != nil {
		f.t.Fatal(err)
	}
	hello := &streampb.Hello{
		Subscriber: subscriber, ProcessId: subscriber, Start: streampb.Start_START_NOW,
		Subscriptions: []*streampb.Subscription{{Id: "s", Db: f.lab.database, Coll: "orders"}},
	}
	if err := stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: hello}}); err != nil {
		f.t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		f.t.Fatal(err)
	}
	return cut
}

// Many gateways die, and then a node: whoever is paged hears of the node, by itself, and of the
// gateways nothing that is urgent.
func TestDeadGatewaysHideNoDeadNode(t *testing.T) {
	t.Parallel()
	posts := make(chan notice.Delivery, 10_000)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // of a node that was killed meanwhile
		}
		var d notice.Delivery
		if err := json.Unmarshal(body, &d); err != nil {
			t.Error(err)
		}
		posts <- d
	}))
	t.Cleanup(receiver.Close)
	f := newFleet(t, "etcd", 3, unhurried, "STREAMER_NOTICES_WEBHOOK_URL="+receiver.URL, "STREAMER_NOTICES_WEBHOOK_SECRET="+strings.Repeat("s", 32),
		"STREAMER_CLUSTER_HEARTBEAT_INTERVAL=500ms", "STREAMER_GRPC_HEARTBEAT_TIMEOUT=5m")
	f.begin()
	leader, _ := f.owning(true)
	victim, _ := f.owning(false)
	const gateways = 40
	var cuts []func()
	for i := range gateways {
		cuts = append(cuts, f.call(f.ships[i%len(f.ships)].grpc, fmt.Sprint("tenant-", i)))
	}
	until(t, "the nodes report the gateways", func() bool { all, whole := f.view().Gateways(); return whole && len(all) == gateways })
	for _, cut := range cuts {
		cut()
	}
	leader.await("gateways are dead")
	victim.kill()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		select {
		case d := <-posts:
			if n := d.Notice; n != nil && n.Fields["code"] == string(fault.NodeMissing) && strings.Contains(n.Text, victim.name) {
				return
			} else if n != nil && n.Level == notice.Critical {
				t.Errorf("paged: %+v", n)
			}
			if s := d.Summary; s != nil && s.Level == notice.Critical {
				t.Fatalf("what is critical is in a summary: %+v", s)
			}
		case <-timeout.C:
			t.Fatal("the node's death is not posted")
		}
	}
}
