package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/streampb"
)

// An ear keeps what is received as it came.
type ear struct {
	encoding.CodecV2

	heard chan []byte
}

func (e ear) Unmarshal(data mem.BufferSlice, v any) error {
	e.heard <- data.Materialize()
	return e.CodecV2.Unmarshal(data, v)
}

// The buffer of a frame that was sent is used again as it is: clearing it would cost as much as
// writing the next frame.
func TestBuffersOfFramesAreUsedAgainAsTheyAre(t *testing.T) {
	pool := &gateway.FramePool{}
	for range 100 { // the race detector makes pools forget buffers
		poison(pool, 1<<19)
		b := pool.Get(300 << 10)
		if len(*b) != 300<<10 || cap(*b) != 1<<19 {
			t.Fatalf("%d bytes of %d", len(*b), cap(*b))
		}
		if all := (*b)[:cap(*b)]; bytes.Count(all, []byte{0xa5}) == len(all) {
			return
		}
	}
	t.Error("no buffer was used again as it was")
}

// poison puts a buffer into a pool that has something of somebody else.
func poison(pool *gateway.FramePool, size int) {
	b := bytes.Repeat([]byte{0xa5}, size)[:0:size]
	pool.Put(&b)
}

// Batches are written by hand: byte for byte what protobuf writes of the same message, whatever
// their buffers had before.
func TestBatchesAreWhatProtobufWrites(t *testing.T) {
	for size := 1; size <= 1<<20; size *= 2 {
		for range 10 {
			poison(gateway.Frames(), size)
		}
	}
	w := newWorld(t, options{})
	heard := make(chan []byte, 1000)
	w.client = streampb.NewGatewayClient(w.conn(grpc.WithDefaultCallOptions(grpc.ForceCodecV2(ear{encoding.GetCodecV2("proto"), heard}))))
	s := w.connect(hello(func(h *streampb.Hello) {
		h.Subscriptions = []*streampb.Subscription{
			{Id: "all"}, {Id: "json", Format: streampb.Format_FORMAT_JSON}, {Id: "alike"}, {Id: "v", Fields: []string{"v"}, Ops: []string{"insert"}},
		}
		owned(h)
		h.Detachable = true
	}))
	attach := &streampb.Attach{}
	for p := range uint32(partitions) {
		attach.Positions = append(attach.Positions, &streampb.PartitionPosition{Partition: p, Position: s.to})
	}
	s.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Attach{Attach: attach}})
	if b := next(s, func(r *streampb.ConnectResponse) *streampb.Batch {
		if len(r.GetBatch().GetAttached()) > 0 {
			return r.GetBatch()
		}
		return nil
	}); len(b.GetAttached()) != partitions || len(b.GetEvents()) > 0 {
		t.Errorf("attached: %v", b)
	}
	for id := range int64(20) {
		w.source.Append(changetest.Event{ID: id, Value: id, Pad: int(id) * 50})
	}
	w.source.Append(changetest.Event{Op: "drop", Keyless: true})
	of := map[uint32]int{}
	events := s.events(20*3 + 2)
	for _, e := range events {
		of[e.GetPartition()]++
		if len(e.GetPosition()) != 34 || len(e.GetChange()) == 0 {
			t.Fatalf("%v", e)
		}
		switch e.GetFormat() {
		case streampb.Format_FORMAT_JSON:
			if !slices.Equal(e.GetSubscriptions(), []string{"json"}) || e.GetChange()[0] != '{' {
				t.Errorf("%v", e)
			}
		default:
			slices.Sort(e.GetSubscriptions())
			if !slices.Equal(e.GetSubscriptions(), []string{"alike", "all"}) && !slices.Equal(e.GetSubscriptions(), []string{"v"}) {
				t.Errorf("%q", e.GetSubscriptions())
			}
		}
	}
	if len(of) != partitions || !events[60].GetAllPartitions() || !events[61].GetAllPartitions() || events[59].GetAllPartitions() {
		t.Errorf("%v", of)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	var window []change.Term
	for p := range change.Partition(partitions) {
		window = append(window, change.Term{Partition: p, Context: ended})
	}
	w.node.Broadcast(window)
	if b := next(s, func(r *streampb.ConnectResponse) *streampb.Batch {
		if len(r.GetBatch().GetDetached()) > 0 {
			return r.GetBatch()
		}
		return nil
	}); len(b.GetDetached()) != partitions || len(b.GetEvents()) > 0 {
		t.Errorf("detached: %v", b)
	}
	batches := 0
	for len(heard) > 0 {
		b := <-heard
		m := &streampb.ConnectResponse{}
		if err := proto.Unmarshal(b, m); err != nil {
			t.Fatal(err)
		}
		if again, err := proto.Marshal(m); err != nil || m.GetBatch() != nil && !bytes.Equal(b, again) {
			t.Errorf("%x\nis not\n%x of %v: %v", b, again, m, err)
		}
		if m.GetBatch() != nil {
			batches++
		}
	}
	if batches < 3 {
		t.Errorf("%d batches", batches)
	}
}

// The memory of a batch that was sent is that of later batches of any session. Each client gets its
// own events nevertheless, as they were written.
func TestMemoryOfBatchesIsReusedOnceTheyAreCopied(t *testing.T) {
	const clients, each = 4, 2000
	w := newWorld(t, options{})
	var written [clients][][]byte
	var sessions [clients]*session
	for i := range sessions {
		sessions[i] = w.connect(by(fmt.Sprint(i), fmt.Sprintf("key._id / 10 %% %d == %d", clients, i)))
	}
	var events []changetest.Event
	for n := range clients * each {
		of := n / 10 % clients // a reply each
		e := changetest.Event{ID: int64(n), Pad: 300 + n%100, Noise: true}
		events, written[of] = append(events, e), append(written[of], e.Document())
	}
	w.source.Append(events...)
	for n := [clients]int{}; n != [clients]int{each, each, each, each}; {
		for i, s := range sessions {
			if n[i] == each {
				continue
			}
			for _, e := range s.events(1) {
				if want := written[i][n[i]]; !bytes.Contains(e.GetChange(), want) {
					t.Fatalf("event %d of client %d is %x instead of %x", n[i], i, e.GetChange(), want)
				}
				n[i]++
			}
		}
	}
}
