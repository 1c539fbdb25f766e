package fanout_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/wire"
	"github.com/mongostream/streamer/lane"
)

// A follower has sessions with two nodes, and attaches to each partition at one of them or both, like a client that follows the topology.
type follower struct {
	*gateway

	r        *rand.Rand
	hubs     []*fanout.Hub
	sessions []*fanout.Session
	unacked  [][]*wire.Batch
	at       []map[change.Partition]bool // the partitions that are attached, by session
}

// second is another node over the same log. It ends with the first.
func (w *world) second(cfg fanout.Config) *fanout.Hub {
	w.t.Helper()
	log := lane.NewLog(lane.Config{Partitions: partitions, RingBytes: 10_000, PrefetchBytes: 5_000}, w.source)
	cfg.Partitions = partitions
	hub := fanout.New(cfg, log)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 2)
	go func() { ended <- log.Run(ctx, change.Position{}) }()
	go func() { ended <- hub.Run(ctx) }()
	stop := w.stop
	w.stop = func() {
		stop()
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				w.t.Error(err)
			}
		}
	}
	return hub
}

func (f *follower) connect(i int, start change.Position) {
	f.t.Helper()
	s, err := f.hubs[i].Open(f.t.Context(), fanout.SessionConfig{Gateway: "g", Owned: true, Start: start, Have: f.have}, all(f.t))
	if err != nil {
		f.t.Fatal(err)
	}
	f.sessions[i], f.unacked[i] = s, nil
	for p := range f.at[i] {
		f.attach(i, p)
	}
}

func (f *follower) attach(i int, p change.Partition) {
	f.t.Helper()
	f.at[i][p] = true
	if err := f.sessions[i].Attach(map[change.Partition]wire.Place{p: f.have[p]}, nil); err != nil {
		f.t.Fatal(err)
	}
}

func (f *follower) detach(i int, p change.Partition) {
	f.t.Helper()
	delete(f.at[i], p)
	if err := f.sessions[i].Detach([]change.Partition{p}); err != nil {
		f.t.Fatal(err)
	}
}

// receive takes what there is from a session, and acknowledges some of it.
func (f *follower) receive(i int, patience time.Duration) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	batches, _, err := f.sessions[i].Receive(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		f.t.Fatal(err)
	}
	for _, b := range batches {
		f.take(b)
	}
	f.unacked[i] = append(f.unacked[i], batches...)
	n := f.r.IntN(len(f.unacked[i]) + 1)
	for _, b := range f.unacked[i][:n] {
		if err := f.sessions[i].Ack(b.Partition, b.To); err != nil {
			f.t.Fatal(err)
		}
	}
	f.unacked[i] = f.unacked[i][n:]
}

// events returns how many came.
func (f *follower) events() (n int) {
	for _, ids := range f.got {
		n += len(ids)
	}
	return n
}

// Whatever moves, breaks and comes back, a gateway whose partitions are spread over two nodes gets everything once its duplicates are dropped, in
// order, and never sees a hole; where it stands by a node's account is never beyond what it has acknowledged.
func TestPartitionsMoveBetweenNodes(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			cfg := fanout.Config{CreditEvents: 1 + r.IntN(40), CreditBytes: 1 + r.IntN(20_000), Bookmark: time.Duration(1+r.IntN(20)) * time.Second}
			w := newWorld(t, cfg)
			f := &follower{
				gateway: newGateway(t), r: r, hubs: []*fanout.Hub{w.hub, w.second(cfg)}, sessions: make([]*fanout.Session, 2), unacked: make([][]*wire.Batch, 2),
				at: []map[change.Partition]bool{{}, {}},
			}
			written := w.source.Append(inserts(20, 0)...)
			next := int64(20)
			start := change.At(change.Timestamp{T: written[0].Position().Time.T - 1})
			f.connect(0, start)
			f.receive(0, time.Second)
			if len(f.have) != partitions {
				t.Fatalf("the session tells of %d partitions where it begins", len(f.have))
			}
			f.connect(1, start)
			for p := range change.Partition(partitions) {
				f.attach(r.IntN(2), p)
			}
			for range 300 {
				i, p := r.IntN(2), change.Partition(r.IntN(partitions))
				switch r.IntN(8) {
				case 0:
					written = append(written, w.source.Append(inserts(1+r.IntN(30), next)...)...)
					next += 30
				case 1, 2, 3:
					f.receive(i, time.Duration(r.IntN(1000))*time.Millisecond)
				case 4:
					time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
				case 5:
					f.attach(i, p)
				case 6:
					if f.at[1-i][p] {
						f.detach(i, p)
					}
				case 7:
					if r.IntN(4) == 0 {
						f.sessions[i].Close(nil)
						f.connect(i, start)
					}
				}
			}
			for rounds := 0; rounds < 600 && f.events() < len(written); rounds++ { // everything arrives
				f.receive(0, time.Second)
				f.receive(1, time.Second)
			}
			f.expect(written)
			if len(f.losses) > 0 {
				t.Errorf("%d losses", len(f.losses))
			}
			w.stop()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}

// A session delivers nothing that it is not attached to, and says where its gateway stands there all the same.
func TestOnlyWhatIsAttachedIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{Bookmark: time.Second})
		defer w.stop()
		written := w.source.Append(inserts(40, 0)...)
		synctest.Wait()
		start := written[0].Position()
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "g", Owned: true, Start: start}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		g := newGateway(t)
		go func() { _ = g.follow(s) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(g.got) > 0 || len(g.have) != partitions {
			t.Errorf("got %v, told of %d partitions", g.got, len(g.have))
		}
		_, positions, ok := s.Standing()
		for p := range change.Partition(partitions) {
			if !ok || positions[p].Compare(start) != 0 {
				t.Errorf("partition %d stands at %v, %t", p, positions[p], ok)
			}
		}
		if err := s.Attach(map[change.Partition]wire.Place{1: wire.PlaceOf(start)}, nil); err != nil {
			t.Fatal(err)
		}
		w.source.Append(inserts(40, 40)...)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(g.got) != 1 || len(g.got[1]) == 0 {
			t.Errorf("got %v", g.got)
		}
		elsewhere := change.At(written[20].Position().Time)
		if err := s.Ack(2, wire.PlaceOf(elsewhere)); err != nil {
			t.Fatal(err)
		}
		base, positions, ok := s.Standing()
		if _, behind := positions[1]; behind || !ok || positions[0].Compare(start) != 0 || positions[2].Compare(elsewhere) != 0 || !base.After(elsewhere) {
			t.Errorf("stands at %v, %v, %t", base, positions, ok)
		}
		if err := s.Detach([]change.Partition{1, 1, 3}); err != nil {
			t.Fatal(err)
		}
		before := len(g.got[1])
		w.source.Append(inserts(40, 80)...)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(g.got[1]) != before || len(g.got) != 1 {
			t.Errorf("got %v", g.got)
		}
		if _, positions, _ := s.Standing(); positions[1].IsZero() || positions[1].After(w.log.End()) {
			t.Errorf("partition 1 stands at %v", positions[1])
		}
		if err := s.Attach(map[change.Partition]wire.Place{partitions: wire.PlaceOf(start)}, nil); fault.Of(err) != fault.SessionBadPosition {
			t.Error(err)
		}
	})
}

// The moments of a move: the node that is attached to reads what the gateway lacks, and nothing that its other partitions have had.
func TestAttachedPartitionCatchesUpAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fanout.Config{})
		defer w.stop()
		written := w.source.Append(inserts(100, 0)...)
		synctest.Wait()
		start := change.At(written[0].Position().Time.Prev())
		s, err := w.hub.Open(t.Context(), fanout.SessionConfig{Gateway: "g", Owned: true, Start: start}, all(t))
		if err != nil {
			t.Fatal(err)
		}
		g := newGateway(t)
		go func() { _ = g.follow(s) }()
		for p := range change.Partition(partitions) {
			if err := s.Attach(map[change.Partition]wire.Place{p: wire.PlaceOf(start)}, nil); err != nil {
				t.Fatal(err)
			}
			written = append(written, w.source.Append(inserts(10, 100+10*int64(p))...)...)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		g.expect(written)
		if g.repeated > 0 {
			t.Errorf("%d events came twice", g.repeated)
		}
	})
}
