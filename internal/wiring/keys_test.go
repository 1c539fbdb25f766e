package wiring

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/key"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/cursor"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/devmongo"
)

// A watchedKeeper counts what is asked of a keeper, which may be away.
type watchedKeeper struct {
	checkpoint.KeyKeeper

	reads atomic.Int64
	away  atomic.Bool
}

var errAway = errors.New("the store is away")

func (k *watchedKeeper) Keys(ctx context.Context) (checkpoint.Keys, error) {
	k.reads.Add(1)
	if k.away.Load() {
		return nil, errAway
	}
	return k.KeyKeeper.Keys(ctx)
}

func (k *watchedKeeper) AddKey(ctx context.Context, key checkpoint.Key) error {
	if k.away.Load() {
		return errAway
	}
	return k.KeyKeeper.AddKey(ctx, key)
}

// clock is MongoDB's, which tells the bubble's time.
func clock(context.Context) (change.Timestamp, error) {
	return change.Timestamp{T: uint32(time.Now().Unix()), I: 1}, nil
}

// runKeys runs the keys of a node over a keeper, from its first reading on.
func runKeys(t *testing.T, keeper checkpoint.KeyKeeper, log io.Writer) *cursorKeys {
	t.Helper()
	k := newKeyring(cursor.Config{Cluster: "c", Partitions: 4}, keeper, clock, slog.New(slog.NewTextHandler(log, nil)))
	k.refresh(t.Context(), func() bool { return true })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return k
}

func eventAt(id int64) change.Position {
	return changetest.Event{ID: id, Time: change.Timestamp{T: 1000, I: 7}}.Position()
}

func TestCursorsExpireByRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper := &key.Local{}
		nodes := []*cursorKeys{runKeys(t, keeper, io.Discard), runKeys(t, keeper, io.Discard)}
		var serials []uint32
		begun, old := time.Now(), nodes[0].Seal(1, eventAt(1))
		time.Sleep(30 * time.Second) // between two readings
		for hour := range 24 * 7 {
			keys, err := keeper.Keys(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n := len(serials); n == 0 || serials[n-1] != keys.Last().Serial {
				serials = append(serials, keys.Last().Serial)
			}
			// Whatever either seals the other opens, also with a key that it has not heard of.
			for i, node := range nodes {
				sealed := node.Seal(2, eventAt(int64(hour)))
				if at, err := nodes[1-i].Open(t.Context(), 2, sealed); err != nil || at.Compare(eventAt(int64(hour))) != 0 {
					t.Fatalf("after %d hours: %v, %v", hour, at, err)
				}
			}
			age := time.Since(begun)
			_, err = nodes[1].Open(t.Context(), 1, old)
			switch {
			case age < key.Life && err != nil:
				t.Fatalf("refused after %s: %v", age, err)
			case age > key.Life+2*keysEvery && fault.Of(err) != fault.SessionOldCursor:
				t.Fatalf("after %s: %v", age, err)
			}
			time.Sleep(time.Hour)
		}
		if !slices.Equal(serials, []uint32{1, 2, 3, 4, 5, 6, 7}) {
			t.Errorf("in a week two nodes had the keys %v", serials)
		}
		if keys, err := keeper.Keys(t.Context()); err != nil || len(keys) > 4 {
			t.Errorf("%d keys are kept, %v", len(keys), err)
		}
	})
}

func TestNewKeyIsFoundWhenItsFirstCursorComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper := &key.Local{}
		node := runKeys(t, keeper, io.Discard)
		time.Sleep(time.Second)
		keys, err := keeper.Keys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		now, _ := clock(t.Context())
		if err := keeper.AddKey(t.Context(), keys.Next(now.Time())); err != nil {
			t.Fatal(err)
		}
		other := runKeys(t, keeper, io.Discard)
		sealed := other.Seal(1, eventAt(1))
		var wg sync.WaitGroup
		for range 100 { // all reconnect at once
			wg.Go(func() {
				if _, err := node.Open(t.Context(), 1, sealed); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

func TestForgedCursorsCostFewReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper := &watchedKeeper{KeyKeeper: &key.Local{}}
		node := runKeys(t, keeper, io.Discard)
		sealed := node.Seal(1, eventAt(1))
		before, begun := keeper.reads.Load(), time.Now()
		for i := range 10_000 {
			binary.BigEndian.PutUint32(sealed[1:], uint32(i+2)) // keys to come
			if _, err := node.Open(t.Context(), 1, sealed); fault.Of(err) != fault.SessionBadCursor {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		most := int64(time.Since(begun)/keysApart) + 1
		if n := keeper.reads.Load() - before; n == 0 || n > most {
			t.Errorf("%d readings, at most %d", n, most)
		}
		for i := range 1000 {
			binary.BigEndian.PutUint32(sealed[1:], uint32(i+2))
			_, _ = node.Open(t.Context(), 1, sealed)
		}
		if n := keeper.reads.Load() - before; n > most+1 {
			t.Errorf("%d readings, all at one moment", n)
		}
	})
}

func TestCursorsGoOnWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		keeper := &watchedKeeper{KeyKeeper: &key.Local{}}
		keeper.away.Store(true)
		node := runKeys(t, keeper, &log)
		if node.Seal(1, eventAt(1)) != nil {
			t.Error("sealed without keys")
		}
		if _, err := node.Open(t.Context(), 1, []byte("x")); fault.Of(err) != fault.SessionBadCursor {
			t.Error(err)
		}
		keeper.away.Store(false)
		time.Sleep(keysEvery + time.Second)
		sealed := node.Seal(1, eventAt(1))
		keeper.away.Store(true)
		time.Sleep(2 * key.Life)
		for _, sealed := range [][]byte{sealed, node.Seal(1, eventAt(1))} {
			if at, err := node.Open(t.Context(), 1, sealed); err != nil || at.Compare(eventAt(1)) != 0 {
				t.Errorf("%v, %v", at, err)
			}
		}
		keeper.away.Store(false)
		time.Sleep(keysEvery)
		synctest.Wait()
		if _, err := node.Open(t.Context(), 1, sealed); fault.Of(err) != fault.SessionOldCursor {
			t.Errorf("the keys were rotated at last, and %v", err)
		}
		if !strings.Contains(log.String(), errAway.Error()) || !strings.Contains(log.String(), "serial=2") {
			t.Errorf("the log says: %s", log.String())
		}
	})
}

// A gateway that keeps nothing but cursors goes on where it stood when its node has been replaced, whichever store the keys are in.
func TestGatewayGoesOnByCursorsAtAnotherNode(t *testing.T) {
	for _, backend := range []string{config.BackendEtcd, config.BackendMongo} {
		t.Run(string(backend), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{}, "STREAMER_RELIABILITY_CHECKPOINT_BACKEND="+string(backend))
			n := r.begin()
			n.series(0, 50)
			h := &streampb.Hello{
				GatewayId: "g", ProcessId: "p", StartedAt: timestamppb.New(time.Unix(1000, 0)), Start: streampb.Start_START_EARLIEST,
				Subscriptions: []*streampb.Subscription{{Id: "all"}}, Ack: streampb.AckMode_ACK_MODE_AUTO,
			}
			seen := map[string]int{}
			at, welcome := take(t, n.service.Gateway(), h, 50, seen)
			n.cancel()
			<-n.ended
			n = r.begin()
			n.series(50, 100)
			h.GatewayId, h.Start, h.Cluster, h.PartitionCount = "another", streampb.Start_START_RESUME, welcome.GetCluster(), welcome.GetPartitionCount()
			for p, sealed := range at {
				h.Positions = append(h.Positions, &streampb.PartitionPosition{Partition: p, Cursor: sealed})
			}
			if _, welcome = take(t, n.service.Gateway(), h, 50, seen); !welcome.GetRecovered() {
				t.Error("not recovered")
			}
			if len(seen) != 100 {
				t.Errorf("%d changes came of 100", len(seen))
			}
			for id, times := range seen {
				if times != 1 {
					t.Errorf("the change of %s came %d times", id, times)
				}
			}
		})
	}
}

// take connects, and takes batches until there were so many events and a cursor in every partition.
func take(t *testing.T, address string, h *streampb.Hello, n int, seen map[string]int) (map[uint32][]byte, *streampb.Welcome) {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := streampb.NewGatewayClient(connection).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Hello{Hello: h}}); err != nil {
		t.Fatal(err)
	}
	var welcome *streampb.Welcome
	at := map[uint32][]byte{}
	for got := 0; got < n || len(at) < partitions; {
		r, err := stream.Recv()
		if err != nil {
			t.Fatalf("%v after %d events", err, got)
		}
		if w := r.GetWelcome(); w != nil {
			welcome = w
		}
		if b := r.GetBatch(); b != nil {
			at[b.GetPartition()] = b.GetCursor()
			for _, e := range b.GetEvents() {
				got++
				seen[bson.Raw(e.GetChange()).Lookup("documentKey", "_id").String()]++
			}
		}
	}
	return at, welcome
}
