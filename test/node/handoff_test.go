package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/gateway/streampb"
)

// patient has a node keep clients that send no heartbeats.
const patient = "STREAMER_GRPC_HEARTBEAT_TIMEOUT=10m"

// A follower is a session that follows the owners, over gRPC and by hand: it attaches partitions,
// and does nothing else about them.
type follower struct {
	*live

	stream streampb.Gateway_ConnectClient
	at     []byte // where it is

	detached []uint32
	got      map[uint32][]string // _ids, by partition
	all      []string
}

// attach opens a session with a node, and attaches partitions to it.
func (n *live) attach(of ...uint32) *follower {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	n.Cleanup(cancel)
	f := &follower{live: n, got: make(map[uint32][]string)}
	var err error
	if f.stream, err = streampb.NewGatewayClient(n.conn()).Connect(ctx); err != nil {
		n.Fatal(err)
	}
	f.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: &streampb.Hello{
		Start: streampb.Start_START_NOW, Partitions: streampb.Partitions_PARTITIONS_OWNED, Detachable: true, Ack: streampb.AckMode_ACK_MODE_AUTO,
		Subscriptions: []*streampb.Subscription{{Id: "all", Ops: []string{"insert"}, Format: streampb.Format_FORMAT_JSON}},
	}}})
	f.read("the session begins", func() bool { return f.at != nil })
	attach := &streampb.Attach{}
	for _, p := range of {
		attach.Positions = append(attach.Positions, &streampb.PartitionPosition{Partition: p, Position: f.at})
	}
	f.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Attach{Attach: attach}})
	attached := 0
	f.readBatches("the partitions are attached", func(b *streampb.Batch) { attached += len(b.GetAttached()) }, func() bool { return attached == len(of) })
	return f
}

func (f *follower) say(m *streampb.ConnectRequest) {
	f.Helper()
	if err := f.stream.Send(m); err != nil {
		f.Fatal(err)
	}
}

// read receives until something holds.
func (f *follower) read(what string, holds func() bool) {
	f.Helper()
	f.readBatches(what, func(*streampb.Batch) {}, holds)
}

func (f *follower) readBatches(what string, each func(*streampb.Batch), holds func() bool) {
	f.Helper()
	for !holds() {
		m, err := f.stream.Recv()
		if err != nil {
			f.Fatalf("in vain: %s: %v; got %v, without %v", what, err, f.got, f.detached)
		}
		if b := m.GetBatch(); b != nil {
			f.take(b)
			each(b)
		}
	}
}

func (f *follower) take(b *streampb.Batch) {
	f.at = b.GetTo()
	f.detached = append(f.detached, b.GetDetached()...)
	for _, e := range b.GetEvents() {
		var doc struct {
			Key struct {
				ID any `json:"_id"`
			} `json:"documentKey"`
		}
		if err := json.Unmarshal(e.GetChange(), &doc); err != nil {
			f.Errorf("%v: %s", err, e.GetChange())
		}
		if slices.Contains(f.detached, e.GetPartition()) {
			f.Errorf("a change of partition %d comes after its end", e.GetPartition())
		}
		id := fmt.Sprint(doc.Key.ID)
		f.got[e.GetPartition()], f.all = append(f.got[e.GetPartition()], id), append(f.all, id)
	}
}

// hasAsMuch reports whether as many changes of partitions have come as another session has got.
func (f *follower) hasAsMuch(other *follower, of []uint32) bool {
	for _, p := range of {
		if len(f.got[p]) < len(other.got[p]) {
			return false
		}
	}
	return true
}

// owns returns the partitions of a node.
func (n *live) owns() (owned []uint32) {
	for p := range change.Partition(partitions) {
		if n.service.Node().Epoch(p) != (change.Epoch{}) {
			owned = append(owned, uint32(p))
		}
	}
	return owned
}

// handsOver begins a node that owns everything, and a session that follows it; then a second node
// takes half of the partitions.
func (r *rig) handsOver(settings ...string) (donor, target *live, f *follower) {
	r.Helper()
	donor = r.beginWith(nil, append(several("n1"), settings...)...)
	donor.until("one node serves everything", func() bool { return donor.serves() == partitions })
	f = donor.attach(0, 1, 2, 3)
	target = r.beginWith(nil, append(several("n2"), settings...)...)
	target.until("both nodes serve", func() bool { return target.serves() == partitions/2 && donor.serves() == partitions/2 })
	return donor, target, f
}

// For the broadcast window the former owner delivers a partition beside the new one, to sessions
// that do not leave it. Without a window that ends with the transfer, and the session hears so.
func TestFormerOwnerDeliversForTheBroadcastWindow(t *testing.T) {
	t.Parallel()
	for _, overlap := range []string{"0s", "1m"} {
		t.Run(overlap, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{}, patient)
			donor, target, f := r.handsOver("STREAMER_HANDOFF_OVERLAP=" + overlap)
			moved, stays := target.owns(), donor.owns()
			beside := target.attach(0, 1, 2, 3)
			if overlap == "0s" {
				f.read("the partitions that have moved end", func() bool { return len(f.detached) == len(moved) })
			}
			ids := r.series(0, 60)
			beside.read("everything from the target", func() bool { return len(beside.all) == len(ids) })
			delivers := stays // the changes come in the order of the log: after the last of these, others would have come
			if overlap != "0s" {
				delivers = append(slices.Clone(stays), moved...)
			}
			f.read("what the donor delivers", func() bool { return f.hasAsMuch(beside, delivers) })
			for _, p := range moved {
				switch got := f.got[p]; {
				case len(beside.got[p]) == 0:
					t.Errorf("no changes of partition %d", p)
				case overlap == "0s" && len(got) > 0:
					t.Errorf("partition %d has moved, and its former owner delivers %v", p, got)
				case overlap != "0s" && !slices.Equal(got, beside.got[p]):
					t.Errorf("partition %d: its former owner delivers %v, the new one %v", p, got, beside.got[p])
				}
			}
			slices.Sort(f.detached)
			if overlap == "0s" && !slices.Equal(f.detached, moved) || overlap != "0s" && len(f.detached) > 0 {
				t.Errorf("%v end, %v have moved", f.detached, moved)
			}
		})
	}
}

// A node whose lease ends within the broadcast window delivers nothing more of what was its own,
// and goes on with everything else: exclusive subscribers need no owner.
func TestWindowEndsWithTheLeaseOfTheDonor(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{}, patient)
	i := slices.IndexFunc(r.settings, func(s string) bool { return strings.HasPrefix(s, "STREAMER_ETCD_ENDPOINTS=") })
	_, endpoint, _ := strings.Cut(r.settings[i], "=")
	line := newCable(t, strings.TrimPrefix(endpoint, "http://"))
	donor := r.beginWith(nil, append(several("n1"), "STREAMER_HANDOFF_OVERLAP=1m", "STREAMER_CLUSTER_LEASE_TTL="+claim.String(), "STREAMER_ETCD_ENDPOINTS="+line.address())...)
	donor.until("one node serves everything", func() bool { return donor.serves() == partitions })
	f := donor.attach(0, 1, 2, 3)
	target := r.beginWith(nil, several("n2")...)
	target.until("both nodes serve", func() bool { return target.serves() == partitions/2 && donor.serves() == partitions/2 })
	moved, stays := target.owns(), donor.owns()
	beside := target.attach(0, 1, 2, 3)
	line.cut()
	f.read("the partitions that have moved end", func() bool { return len(f.detached) == len(moved) })
	ids := r.series(0, 60)
	beside.read("everything from the target", func() bool { return len(beside.all) == len(ids) })
	f.read("what has not moved", func() bool { return f.hasAsMuch(beside, stays) })
	for _, p := range moved {
		if len(f.got[p]) > 0 {
			t.Errorf("partition %d: %v after the lease", p, f.got[p])
		}
	}
	if slices.Sort(f.detached); !slices.Equal(f.detached, moved) {
		t.Errorf("%v end, %v have moved", f.detached, moved)
	}
}

// A client that follows the owners leaves the window as soon as it has the session with the target,
// and gets everything once.
func TestClientLeavesTheWindowEarly(t *testing.T) {
	t.Parallel()
	r := newRig(t, devmongo.Config{})
	settings := "STREAMER_HANDOFF_OVERLAP=1m"
	donor := r.beginWith(nil, append(several("n1"), settings)...)
	donor.until("one node serves everything", func() bool { return donor.serves() == partitions })
	p := donor.connect(client.Config{Partitions: client.Owned}, client.Subscription{ID: "all", DB: "shop"})
	p.told(t, "connected", connected)
	r.series(0, 20)
	p.takes(t, 20)
	attached := func(n *live) (count int) {
		for _, s := range n.service.Node().Hub().Sessions() {
			count += len(s.State().Partitions)
		}
		return count
	}
	target := r.beginWith(nil, append(several("n2"), settings)...)
	target.until("the client has a session with the target", func() bool { return attached(target) == partitions/2 })
	r.series(20, 60)
	p.takes(t, 40)
	target.until("the client has left the donor", func() bool { return attached(donor) == partitions/2 })
	p.stop() // a node that stops would wait for it for as long as the window
}

// A publication is one change that arrived at the target of a sink.
type publication struct{ node, change string }

// publications are what a target has got, by document in the order of arrival.
type publications struct {
	mu sync.Mutex
	of map[string][]publication
	n  int
}

// take notes what a node has posted.
func (l *publications) take(node string, lines []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range lines {
		var e struct {
			Key struct {
				ID any `json:"_id"`
			} `json:"documentKey"`
			Full struct{ N int } `json:"fullDocument"`
			Upd  struct {
				F struct{ N int } `json:"updatedFields"`
			} `json:"updateDescription"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return fmt.Errorf("%w: %s", err, line)
		}
		id := fmt.Sprint(e.Key.ID)
		l.of[id] = append(l.of[id], publication{node, fmt.Sprint(e.Full.N + e.Upd.F.N)})
		l.n++
	}
	return nil
}

// While partitions move to and fro under load, with a broadcast window longer than the test, each
// change is published once, by one node: sinks have no window.
func TestNoChangeIsPublishedByTwoOwners(t *testing.T) {
	t.Parallel()
	l, e := &publications{of: make(map[string][]publication)}, &endpoint{}
	e.answers(func(r *http.Request, lines []string) int {
		if err := l.take(strings.Trim(r.URL.Path, "/"), lines); err != nil {
			t.Error(err)
		}
		return http.StatusOK
	})
	settings := toHTTP(t, e)
	r := sinkRig(t, settings)
	begin := func(node string) *live {
		r.sink(strings.Replace(settings, "', secret", "/"+node+"', secret", 1))
		return r.beginWith(nil, append(several(node), "STREAMER_HANDOFF_OVERLAP=1m")...)
	}
	const documents = 24
	written, ctx := 0, t.Context()
	write := func(rounds int) {
		for range rounds {
			written++
			for id := range documents {
				_, err := r.coll("orders").UpdateByID(ctx, id, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: written}}}}, options.UpdateOne().SetUpsert(true))
				if err != nil {
					t.Error(err)
				}
			}
		}
	}
	n1 := begin("n1")
	n1.until("one node serves everything", func() bool { return n1.serves() == partitions })
	n2 := begin("n2")
	during := func(what string, holds func() bool) {
		t.Helper()
		over := make(chan struct{})
		var writing sync.WaitGroup
		defer writing.Wait()
		defer close(over)
		writing.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					write(1)
				}
			}
		})
		n1.until(what, holds)
	}
	during("both nodes serve", func() bool { return n1.serves() == partitions/2 && n2.serves() == partitions/2 })
	for range 2 {
		n1.asks("/v1/nodes/n1/drain")
		during("n1 is drained", func() bool { return n1.serves() == 0 && n2.serves() == partitions })
		n1.asks("/v1/nodes/n1/undrain")
		during("both nodes serve again", func() bool { return n1.serves() == partitions/2 && n2.serves() == partitions/2 })
	}
	write(3)
	n1.until("everything is published", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.n >= written*documents })
	l.mu.Lock()
	defer l.mu.Unlock()
	by := make(map[string]int)
	for id, all := range l.of {
		for i, p := range all {
			by[p.node]++
			if p.change != fmt.Sprint(i+1) {
				t.Fatalf("document %s: change %s arrives from %s as number %d: %v", id, p.change, p.node, i+1, all)
			}
		}
	}
	if l.n != written*documents || by["n1"] == 0 || by["n2"] == 0 {
		t.Errorf("%d publications of %d changes, by node: %v", l.n, written*documents, by)
	}
}

// asks has the node do something as an operator asks for it over HTTP.
func (n *live) asks(path string) {
	n.Helper()
	req, err := http.NewRequestWithContext(n.Context(), http.MethodPost, "http://"+n.service.Addr()+path, nil)
	if err != nil {
		n.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		n.Fatalf("%s: %s", path, resp.Status)
	}
}
