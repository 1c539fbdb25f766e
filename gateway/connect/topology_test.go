package connect_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/connect"
	"github.com/mongostream/streamer/gateway/streampb"
)

// topologies is a Topologist that is told what to tell.
type topologies chan connect.Topology

func (c topologies) Follow(ctx context.Context, version uint64) (connect.Topology, error) {
	for {
		select {
		case t, more := <-c:
			if !more {
				return t, errors.New("no more")
			}
			if t.Version > version {
				return t, nil
			}
		case <-ctx.Done():
			return connect.Topology{}, context.Cause(ctx)
		}
	}
}

func TestTopologyIsToldWheneverItChanges(t *testing.T) {
	told := make(topologies)
	w := newWorld(t, connect.Config{Topology: told})
	s := w.connect(hello(nil))
	for version := range uint64(3) {
		told <- connect.Topology{Version: 7 + version, Nodes: []connect.NodeAddress{{Name: "a", Address: "a:1"}, {Name: "b"}}, Owners: []int{0, 1, -1, int(version)}}
		got := next(s, (*streampb.ConnectResponse).GetTopology)
		if n := got.GetNodes(); got.GetVersion() != 7+version || len(n) != 2 || n[0].GetName() != "a" || n[0].GetAddress() != "a:1" || n[1].GetName() != "b" ||
			!slices.Equal(got.GetOwners(), []int32{0, 1, -1, int32(version)}) {
			t.Errorf("%v", got)
		}
	}
	close(told) // the session goes on
	w.source.Append(changetest.Event{ID: 1})
	s.events(1)
}

// owned is a hello of a session that delivers what it is attached to.
func owned(change func(*streampb.Hello)) *streampb.Hello {
	return hello(func(h *streampb.Hello) {
		h.Partitions = streampb.Partitions_PARTITIONS_OWNED
		if change != nil {
			change(h)
		}
	})
}

func (s *session) say(m *streampb.ConnectRequest) {
	s.Helper()
	if err := s.Send(m); err != nil {
		s.Fatal(err)
	}
}

func attach(positions ...*streampb.PartitionPosition) *streampb.ConnectRequest {
	return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Attach{Attach: &streampb.Attach{Positions: positions}}}
}

func detach(partitions ...uint32) *streampb.ConnectRequest {
	return &streampb.ConnectRequest{Message: &streampb.ConnectRequest_Detach{Detach: &streampb.Detach{Partitions: partitions}}}
}

// A session gets what it attaches to, from where it says that it stands, and nothing else: by position, by cursor, and by both.
func TestSessionAttachesToPartitions(t *testing.T) {
	w := newWorld(t, connect.Config{Cursors: newRing(t, bound(), keysOf(t, 1))})
	f := follow(w.connect(owned(nil)))
	f.take(0) // where the session begins in each
	var want [partitions]int
	partitioner := change.NewPartitioner(partitions)
	for _, e := range w.source.Append(manyOf(200)...) {
		parsed, err := change.Parse(e.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		p, _ := partitioner.Of(&parsed)
		want[p]++
	}
	for round, edit := range []func(*streampb.PartitionPosition){
		func(*streampb.PartitionPosition) {}, alone, func(p *streampb.PartitionPosition) { p.Cursor = nil }, func(p *streampb.PartitionPosition) { p.Cursor = []byte("x") },
	} {
		p := uint32(round % partitions)
		from := &streampb.PartitionPosition{Partition: p, Position: f.at[p].GetPosition(), Cursor: f.at[p].GetCursor()}
		edit(from)
		f.say(attach(from))
		for got := 0; got < want[p]; {
			b := next(f.session, (*streampb.ConnectResponse).GetBatch)
			if b.GetPartition() != p {
				t.Fatalf("a batch of partition %d, %d is attached", b.GetPartition(), p)
			}
			got += len(b.GetEvents())
		}
		f.say(detach(p, 99))
	}
	if code, reason, _ := func() (codes.Code, string, string) {
		f.say(attach(&streampb.PartitionPosition{Partition: 1}))
		return f.refused()
	}(); code != codes.InvalidArgument || reason != string(fault.SessionBadPosition) {
		t.Errorf("no position: %s %s", code, reason)
	}
	for name, m := range map[string]*streampb.ConnectRequest{
		"no partition": attach(&streampb.PartitionPosition{Partition: partitions, Position: f.at[0].GetPosition()}),
		"twice":        attach(f.at[0], f.at[0]),
		"forged":       attach(&streampb.PartitionPosition{Partition: 1, Cursor: []byte("x")}),
	} {
		s := w.connect(owned(nil))
		s.say(m)
		if code, reason, _ := s.refused(); code != codes.InvalidArgument || reason != string(fault.SessionBadPosition) && reason != string(fault.SessionBadCursor) {
			t.Errorf("%s: %s %s", name, code, reason)
		}
	}
	s := w.connect(hello(nil))
	s.say(attach(f.at[0]))
	if code, reason, _ := s.refused(); code != codes.InvalidArgument || reason != string(fault.SessionBadRequest) {
		t.Errorf("attached to everything: %s %s", code, reason)
	}
}

// A session that gets all partitions cannot detach from some: it is refused, and whatever it says, sessions that are attached to partitions
// miss nothing.
func TestDetachOfAnOrdinarySessionIsRefusedAndHarmsNobody(t *testing.T) {
	w := newWorld(t, connect.Config{})
	ordinary := w.connect(hello(func(h *streampb.Hello) { h.GatewayId = "ordinary" }))
	next(ordinary, (*streampb.ConnectResponse).GetSubscribed)
	for range 3 { // each more than once, too
		_ = ordinary.Send(detach(0, 1, 2, 3, 3)) // the first ends the session
	}
	_ = ordinary.CloseSend()
	if code, reason, _ := ordinary.refused(); code != codes.InvalidArgument || reason != string(fault.SessionBadRequest) {
		t.Errorf("detached from some of all: %s %s", code, reason)
	}
	w.until("the ordinary session is gone", func() bool { return w.sessions() == 0 })

	f := follow(w.connect(owned(nil)))
	f.take(0)
	f.say(attach(f.at[0], f.at[1], f.at[2], f.at[3]))
	for range 2 { // the first may come before it is on the live path
		w.source.Append(manyOf(40)...)
		f.take(40)
		w.until("the session is on the live path", func() bool { return w.gauge("streamer_gateway_sessions", "live") == 1 })
	}
}

func manyOf(n int) []changetest.Event {
	events := make([]changetest.Event, n)
	for i := range events {
		events[i].ID = int64(i)
	}
	return events
}

// A gateway that follows the topology has a session with each node. What is kept under its id is about all partitions, whichever node
// keeps it: those that a session is not attached to stand where the gateway says.
func TestRowOfOneNodeTellsWhereTheGatewayStandsEverywhere(t *testing.T) {
	w := newWorld(t, connect.Config{})
	written := w.source.Append(manyOf(100)...)
	begin := change.At(written[0].Position().Time.Prev())
	head := begin.Head().Append(nil)
	s := w.connect(owned(func(h *streampb.Hello) {
		h.Start, h.Cluster, h.PartitionCount = streampb.Start_START_RESUME, "c", partitions
		for p := range uint32(partitions) {
			h.Positions = append(h.Positions, &streampb.PartitionPosition{Partition: p, Position: &streampb.Position{Head: head}})
		}
	}))
	s.say(attach(&streampb.PartitionPosition{Partition: 1, Position: &streampb.Position{Head: head}}))
	elsewhere := change.At(written[50].Position().Time)
	s.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Ack{Ack: &streampb.Ack{Positions: []*streampb.PartitionPosition{
		{Partition: 2, Position: &streampb.Position{Head: elsewhere.Head().Append(nil)}},
	}}}})
	s.events(1)
	s.acknowledge()
	// A heartbeat that is answered would tell that the acknowledgements have been read; a subscription that is answered does.
	s.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Subscribe{Subscribe: &streampb.Subscribe{Subscriptions: []*streampb.Subscription{{Id: "more"}}}}})
	for next(s, (*streampb.ConnectResponse).GetSubscribed).GetId() != "more" {
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := s.Recv(); err != nil {
			break
		}
	}
	w.rows.mu.Lock()
	row := w.rows.kept["g"]
	w.rows.mu.Unlock()
	stands := func(p change.Partition) change.Position {
		if at, differs := row.Positions[p]; differs {
			return at
		}
		return row.Base
	}
	if stands(0).Compare(begin) != 0 || stands(2).Compare(elsewhere) != 0 || stands(3).Compare(begin) != 0 || !stands(1).After(begin) {
		t.Errorf("%+v", row)
	}
}
