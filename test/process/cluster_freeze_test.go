package process

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/client"
)

// An owner stands still for longer than its lease lives, with events waiting in its sockets and
// marks on their way. When it goes on it hands nothing to anybody before it is a member again,
// moves no mark of what others own by now, and says why.
func TestFrozenOwnerHandsOutNothingAndMovesNoCheckpoint(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			freeze(t, backend)
		})
	}
}

func freeze(t *testing.T, backend string) {
	f := tappedFleet(t, backend, 3)
	f.begin()
	frozen, owned := f.owning(false)
	g := f.attend("frozen", client.All, frozen.grpc)
	ship := func(written, from, to time.Time) (n int) {
		for _, p := range f.between(written, from, to) {
			if p.by == frozen.name {
				n++
			}
		}
		return n
	}
	stop := f.write(300)
	begun := time.Now()
	until(t, "it prints", func() bool { return ship(begun, begun, time.Now()) > 100 })

	accepted := f.watchMarks(owned)
	heal := frozen.holdMarks(t)
	frozen.signal(syscall.SIGSTOP)
	stopped := time.Now()
	took := f.again(owned, frozen.name, stopped)
	f.marksNotBy(frozen.name, owned)
	t.Logf("%d partitions: delivered again after %v", len(owned), took)
	taken := time.Now()
	heal() // which lets go of what was on its way
	until(t, "marks of the frozen node arrive", func() bool { return frozen.far.since(taken) > 0 })
	thawed := time.Now()
	frozen.signal(syscall.SIGCONT)
	back := frozen.reattached(thawed)
	t.Logf("%d marks arrived late; a member again %v after it went on", frozen.far.since(taken), back.Sub(thawed))
	deadline := stopped.Add(fleetDeadline)
	// What it had handed to the kernel or to gRPC when it froze arrives when it goes on. Of what
	// was written later it had handed out nothing.
	frozenBy := stopped.Add(500 * time.Millisecond)
	if n := ship(frozenBy, deadline, back); n > 0 {
		t.Errorf("it has printed %d events when it was no member", n)
	}
	// The gateway needs no owner: the node that it is with serves it as before, a member or not.
	until(t, "the gateway is served by the node that went on", func() bool { return g.between(time.Time{}, thawed, time.Now()) > 0 })
	if n := accepted(taken); n > 0 {
		t.Errorf("%d marks of the frozen node were taken after others owned the partitions", n)
	}
	if !frozen.noted(wasDetached) || frozen.noted("panic") {
		t.Error("it does not say that it was detached")
	}
	until(t, "it says that it is attached", func() bool { return metric(t, frozen.url(), "streamer_sharding_detached") == 0 })
	stop()
	g.judge()
	f.judge()
}

// wasDetached is in the line that a node logs when it has ended its terms.
const wasDetached = "detached from the cluster: terms ended"

// holdMarks makes the node's requests slow in time for its next marks, and returns when they have
// been sent and have not arrived.
func (s *ship) holdMarks(t *testing.T) (heal func()) {
	t.Helper()
	for range 20 {
		if !s.near.next(patience) {
			break
		}
		moment := time.NewTimer(50 * time.Millisecond) // a round has its answer by then; the next comes soon
		<-moment.C
		held := time.Now()
		heal = s.marks.Spoil(`{"name": "slow", "type": "latency", "stream": "upstream", "attributes": {"latency": 100000}}`)
		if s.near.next(time.Second) {
			if _, detached := s.detached(held, time.Now()); detached == 0 {
				return heal
			}
		}
		heal() // a round was under way, and holds up those behind it
	}
	t.Fatal("the node sends no marks")
	return nil
}

// watchMarks watches the marks that are taken from now on, and returns what counts those of the
// epochs that were taken after a moment.
func (f *fleet) watchMarks(epochs map[change.Partition]change.Epoch) (accepted func(after time.Time) int) {
	f.t.Helper()
	var mu sync.Mutex
	var taken []time.Time
	take := func(key, value string) {
		c, _, err := checkpoint.Decode(key, func(checkpoint.Key) string { return key }, partitions, []byte(value))
		if err != nil {
			f.t.Error(err)
		}
		if c.Epoch == epochs[c.Partition] {
			mu.Lock()
			defer mu.Unlock()
			taken = append(taken, time.Now())
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	f.t.Cleanup(func() {
		cancel()
		watching.Wait()
	})
	begun := make(chan struct{})
	switch m := f.lab.store.(type) {
	case *etcdStore:
		watching.Go(func() { m.watch(ctx, begun, take) })
	case *mongoStore:
		watching.Go(func() { m.watch(ctx, begun, take) })
	}
	<-begun
	return func(after time.Time) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, at := range taken {
			if at.After(after) {
				n++
			}
		}
		return n
	}
}

// watch passes each checkpoint of standard output that is written, until the context ends.
func (m *etcdStore) watch(ctx context.Context, begun chan<- struct{}, take func(key, value string)) {
	prefix := m.root + "checkpoint/shared/" + printer + "/"
	for resp := range m.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if resp.Created {
			close(begun)
		}
		for _, e := range resp.Events {
			take(string(e.Kv.Key), string(e.Kv.Value))
		}
	}
}

// watch passes each checkpoint of standard output that is written, until the context ends.
func (m *mongoStore) watch(ctx context.Context, begun chan<- struct{}, take func(key, value string)) {
	stream, err := m.database.Collection(m.lab.cluster+".checkpoints").Watch(ctx, bson.A{})
	close(begun)
	if err != nil {
		m.lab.t.Error(err)
		return
	}
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }()
	for stream.Next(ctx) {
		var e struct {
			Key struct {
				ID string `bson:"_id"`
			} `bson:"documentKey"`
			Update struct {
				Set struct {
					Checkpoint string `bson:"checkpoint"`
				} `bson:"updatedFields"`
			} `bson:"updateDescription"`
		}
		if err := stream.Decode(&e); err != nil {
			m.lab.t.Error(err)
		} else if e.Update.Set.Checkpoint != "" && strings.HasPrefix(e.Key.ID, "shared/"+printer+"/") {
			take(e.Key.ID, e.Update.Set.Checkpoint)
		}
	}
}

// reattached waits until the node is a member again, and returns when it was. On a busy machine it
// may have come back before, too.
func (p *process) reattached(after time.Time) (back time.Time) {
	p.t.Helper()
	until(p.t, "the node is a member again", func() bool {
		for _, line := range p.notes.all() {
			if strings.Contains(line, "attached to the cluster again") && stamped(p.t, line).After(after) {
				back = stamped(p.t, line)
			}
		}
		return !back.IsZero()
	})
	return back
}

// stamped returns the time of a log line.
func stamped(t testing.TB, line string) time.Time {
	t.Helper()
	_, rest, _ := strings.Cut(line, "time=")
	text, _, _ := strings.Cut(rest, " ")
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
