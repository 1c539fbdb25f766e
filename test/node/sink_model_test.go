package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mongostream/streamer/change"
	devbroker "github.com/mongostream/streamer/dev/broker"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/file"
	sinkhttp "github.com/mongostream/streamer/sink/http"
	"github.com/mongostream/streamer/sink/kafka"
	"github.com/mongostream/streamer/sink/nats"
)

// Whatever becomes of a partition's owners, by crashes, frozen processes, handoffs, rewinds and
// repartitions, the last message of each document is its newest state at every target, and what
// comes again is a contiguous replay, for which there is a reason: a target with a fence has each
// change once in an incarnation of the checkpoint. What is random is new each time.
func TestTargetsKeepTheNewestState(t *testing.T) {
	t.Parallel()
	judgeTargets(t, 3*time.Second)
}

// judgeTargets judges random histories at each target for a time.
func judgeTargets(t *testing.T, lasts time.Duration) {
	for name, begin := range targets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, seed := begin(t), uint64(time.Now().UnixNano())
			runs := 0
			for end := time.Now().Add(lasts); runs == 0 || time.Now().Before(end); runs++ {
				h := &ownership{T: t, broker: b, run: runs, dice: rand.New(rand.NewPCG(seed, uint64(runs)))}
				h.play()
				if t.Failed() {
					t.Fatalf("seed %d, run %d: %q", seed, runs, h.did)
				}
			}
			t.Logf("%d histories", runs)
		})
	}
}

// targets are all kinds of them.
func targets() map[string]func(*testing.T) broker {
	return map[string]func(*testing.T) broker{
		"nats": natsBroker(false), "nats, fence": natsBroker(true), "kafka": kafkaBroker(false), "kafka, transactions": kafkaBroker(true), "http": httpBroker, "file": fileBroker,
	}
}

// A change that a filter had hidden when the owner before read it, and does not hide when it is
// read again, does not come after newer ones where the target knows its position; elsewhere it
// comes in its place in the replay.
func TestHiddenChangeDoesNotFollowNewerOnes(t *testing.T) {
	t.Parallel()
	for name, begin := range targets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &ownership{T: t, broker: begin(t), log: []int{0, 0, 0, 0}}
			read := func(changes ...int) {
				h.succeed(false)
				for _, i := range changes {
					for sink.One(t.Context(), h.now.target, h.message(h.now, i)) != nil && t.Context().Err() == nil { // an endpoint fails now and then
					}
				}
			}
			read(0, 2)
			read(0, 1, 2, 3)
			var got []int
			for _, v := range h.broker.values(0, "[0,3]") {
				var change [2]int
				if err := json.Unmarshal([]byte(v), &change); err != nil {
					t.Fatal(err)
				}
				got = append(got, change[1])
			}
			want := []int{0, 2, 0, 1, 2, 3}
			if h.broker.fences {
				want = []int{0, 2, 3}
			}
			if got = slices.Compact(got); !slices.Equal(got, want) {
				t.Errorf("the target has %v, want %v", got, want)
			}
			for _, o := range append(h.replaced, h.now) {
				o.target.Close()
			}
		})
	}
}

// A broker is one that targets publish to.
type broker struct {
	fences bool
	// open makes a target for a run, after a number of repartitions.
	open func(run, moves int) sink.Target
	// values returns those of the run's partition and collection up to the last change.
	values func(run int, last string) []string
}

// An ownership is the history of a partition: its owners publish its log in turn.
type ownership struct {
	*testing.T

	broker broker
	run    int
	dice   *rand.Rand
	did    []string

	log       []int // the document of each change
	epoch     uint64
	rewinds   int // and repartitions, which begin an incarnation, too
	moves     int // repartitions
	reasons   int // for which changes may come again
	acked     int // by the checkpoint
	rewound   int // where the last rewind has set it, -1 if nothing after that was published before
	published int // by all owners
	now       *ownerOf
	replaced  []*ownerOf
}

// An ownerOf is an owner of the partition in a term.
type ownerOf struct {
	target  sink.Target
	epoch   uint64
	rewinds int
	moves   int
	from    int // the first change of its term
	next    int
	valid   atomic.Bool
}

// message returns a change as the owner publishes it.
func (h *ownership) message(o *ownerOf, i int) *sink.Message {
	at := change.Timestamp{T: 1000, I: uint32(i + 1)}
	value, err := json.Marshal([2]int{h.log[i], i})
	if err != nil {
		h.Fatal(err)
	}
	m := &sink.Message{
		Partition: change.Partition(h.run*mostMoves + o.moves), Epoch: change.Epoch{Incarnation: 1, Revision: o.epoch}, Incarnation: fmt.Sprintf("1-A-%d", o.rewinds),
		Number: uint64(i - o.from + 1), Ref: change.At(at).Ref(), ID: fmt.Sprint(i), Op: "update", DB: "shop", Coll: fmt.Sprintf("run%d", h.run),
		Key: []byte(fmt.Sprint(h.log[i])), Value: value, Time: at,
	}
	sink.Own(m, o.valid.Load)
	return m
}

// publish publishes what follows, at most so many changes at once, and goes on after those that
// were acknowledged, as a sink does.
func (h *ownership) publish(o *ownerOf, most int) {
	outcomes := make([]error, min(most, len(h.log)-o.next))
	var wg sync.WaitGroup
	for i := range outcomes {
		m := h.message(o, o.next+i)
		wg.Add(1)
		sink.Report(m, func(err error) {
			outcomes[i] = err
			wg.Done()
		})
		o.target.Publish(context.Background(), m)
	}
	o.target.Flush()
	wg.Wait()
	for _, err := range outcomes {
		if err != nil {
			h.reasons++
			return
		}
		o.next++
		h.published = max(h.published, o.next)
	}
}

// succeed gives the partition to another owner, at the checkpoint. The term of the one before may
// still count as valid where that one was frozen after it had looked.
func (h *ownership) succeed(frozen bool) {
	if h.now != nil {
		h.now.valid.Store(frozen)
		h.replaced = append(h.replaced, h.now)
	}
	h.epoch++
	h.now = &ownerOf{target: h.broker.open(h.run, h.moves), epoch: h.epoch, rewinds: h.rewinds, moves: h.moves, from: h.acked, next: h.acked}
	h.now.valid.Store(true)
}

// frozen says at random whether an owner that is replaced sends on. Only a fence refuses that.
func (h *ownership) frozen() bool { return h.broker.fences && h.dice.IntN(4) > 0 }

// goBack begins another incarnation of the checkpoint, before what was acknowledged.
func (h *ownership) goBack() {
	h.rewinds++
	h.acked = h.dice.IntN(h.acked + 1)
	if h.rewound = h.acked; h.published <= h.acked {
		h.rewound = -1
	}
}

// mostMoves bounds the repartitions of a run.
const mostMoves = 32

// repartition moves all documents to another partition, while no node runs.
func (h *ownership) repartition() {
	for _, o := range append(h.replaced, h.now) {
		o.target.Close()
	}
	h.replaced, h.now = nil, nil
	h.moves++
	h.goBack()
	h.succeed(false)
}

// handOff gives the partition to another owner, which begins after what this one has published.
func (h *ownership) handOff() {
	h.acked = h.now.next
	h.succeed(false)
}

// play lets a random history happen, and judges it.
func (h *ownership) play() {
	h.succeed(false)
	for range 10 + h.dice.IntN(20) {
		step := []int{0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 4, 4, 4, 5, 6, 7, 7, 8}[h.dice.IntN(18)]
		h.did = append(h.did, [...]string{"write", "publish", "save", "crash", "an owner that was replaced publishes", "restart", "rewind", "handoff", "repartition"}[step])
		switch step {
		case 0:
			for range 1 + h.dice.IntN(6) {
				h.log = append(h.log, h.dice.IntN(3))
			}
		case 1:
			h.publish(h.now, 1+h.dice.IntN(4))
		case 2:
			h.acked += h.dice.IntN(h.now.next - h.acked + 1)
		case 3:
			h.reasons++
			h.succeed(h.frozen())
		case 4:
			if n := len(h.replaced); n > 0 {
				h.publish(h.replaced[n-1-h.dice.IntN(min(n, 2))], 3)
			}
		case 5: // a new target in the same term publishes again what was not acknowledged
			h.reasons++
			h.now.target.Close()
			h.now.target, h.now.next = h.broker.open(h.run, h.moves), h.acked+h.dice.IntN(h.now.next-h.acked+1)
		case 6:
			h.goBack()
			h.succeed(h.frozen())
		case 7:
			h.handOff()
		case 8:
			h.repartition()
		}
	}
	h.log = append(h.log, 0)
	for attempt := 0; h.now.next < len(h.log); attempt++ {
		if attempt == 100 {
			h.Fatalf("%d of %d are published", h.now.next, len(h.log))
		}
		h.publish(h.now, len(h.log))
	}
	h.judge()
	for _, o := range append(h.replaced, h.now) {
		o.target.Close()
	}
}

// judge judges what the target has.
func (h *ownership) judge() {
	newest, has := map[int]int{}, map[int]int{}
	for i, doc := range h.log {
		newest[doc] = i
	}
	last, back := -1, 0
	var all []int
	for _, v := range h.broker.values(h.run, fmt.Sprintf("[0,%d]", len(h.log)-1)) {
		var got [2]int
		if err := json.Unmarshal([]byte(v), &got); err != nil {
			h.Fatal(err)
		}
		if got[1] > last+1 {
			h.Errorf("%d follows %d", got[1], last)
		}
		if got[1] <= last {
			back++
		}
		last, has[got[0]] = got[1], got[1]
		all = append(all, got[1])
	}
	for doc, i := range newest {
		if has[doc] != i {
			h.Errorf("the last message of document %d is change %d, its newest state is %d", doc, has[doc], i)
		}
	}
	reasons := h.rewinds
	if !h.broker.fences {
		reasons += h.reasons
	}
	if back > reasons {
		h.Errorf("%d repetitions, for which there are %d reasons", back, reasons)
	}
	if first, last := slices.Index(all, h.rewound), len(all)-len(h.log)+h.rewound; h.rewinds > 0 && h.rewound >= 0 && h.broker.fences &&
		(last <= first || all[last] != h.rewound) {
		h.Errorf("what follows change %d is to come again, whole", h.rewound)
	}
	if h.Failed() {
		h.Logf("the target has %v", all)
	}
}

// natsBroker begins a NATS server.
func natsBroker(fence bool) func(t *testing.T) broker {
	return func(t *testing.T) broker {
		t.Helper()
		n, err := devbroker.StartNATS(t.TempDir(), 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Stop)
		stream, conn, err := n.Stream(t.Context(), "changes", "changes.>")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		seen := uint64(0)
		return broker{
			fences: fence,
			open: func(int, int) sink.Target {
				target, err := nats.New(nats.Config{URL: n.URL(), Subject: "changes.{partition}.{coll}", Losses: "changes.losses", Fence: fence, Source: "c/out"})
				if err != nil {
					t.Fatal(err)
				}
				return target
			},
			values: func(run int, _ string) (values []string) {
				info, err := stream.Info(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for seen < info.State.LastSeq {
					seen++
					var m *jetstream.RawStreamMsg
					if m, err = stream.GetMsg(t.Context(), seen); err != nil {
						t.Fatal(err)
					}
					if strings.HasSuffix(m.Subject, fmt.Sprintf(".run%d", run)) {
						values = append(values, string(m.Data))
					}
				}
				return values
			},
		}
	}
}

// kafkaBroker begins Kafka.
func kafkaBroker(transactional bool) func(t *testing.T) broker {
	return func(t *testing.T) broker {
		t.Helper()
		k, err := devbroker.StartKafka(1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		return broker{
			fences: transactional,
			open: func(_, moves int) sink.Target {
				target, err := kafka.New(kafka.Config{Brokers: k.ListenAddrs(), Topic: "{coll}", Losses: "losses", Transactional: transactional, ID: fmt.Sprintf("model.%d", moves), Create: true})
				if err != nil {
					t.Fatal(err)
				}
				return target
			},
			values: func(run int, last string) (values []string) {
				client, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.ConsumeTopics(fmt.Sprintf("run%d", run)),
					kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				for len(values) == 0 || values[len(values)-1] != last {
					fetches := client.PollFetches(ctx)
					if ctx.Err() != nil {
						t.Fatalf("only %q", values)
					}
					fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
				}
				return values
			},
		}
	}
}

// httpBroker begins an endpoint that fails now and then, before it has taken a request or after
// that.
func httpBroker(t *testing.T) broker {
	t.Helper()
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	taken := make(map[string][]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the sink has withdrawn it
		}
		mu.Lock()
		defer mu.Unlock()
		fate := dice.IntN(8)
		if fate == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		taken[r.URL.Path] = append(taken[r.URL.Path], strings.Fields(string(body))...)
		if fate == 1 {
			panic(http.ErrAbortHandler) // which cuts the connection
		}
	}))
	t.Cleanup(s.Close)
	return broker{
		open: func(run, _ int) sink.Target {
			return sinkhttp.New(sinkhttp.Config{URL: fmt.Sprintf("%s/%d", s.URL, run), Batch: 1 + run%3, Secret: "0123456789abcdef", Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		},
		values: func(run int, _ string) []string {
			mu.Lock()
			defer mu.Unlock()
			return taken[fmt.Sprintf("/%d", run)]
		},
	}
}

// fileBroker makes files, with the beginning of a line that a crash has left at their ends.
func fileBroker(t *testing.T) broker {
	t.Helper()
	dir := t.TempDir()
	path := func(run int) string { return filepath.Join(dir, fmt.Sprint(run), "changes") }
	return broker{
		open: func(run, _ int) sink.Target {
			if err := os.MkdirAll(filepath.Dir(path(run)), 0o700); err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(path(run), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = f.WriteString("[0,")
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			return file.New(file.Config{Path: path(run), MaxSize: 50, Keep: 1000})
		},
		values: func(run int, _ string) (values []string) {
			full, err := filepath.Glob(path(run) + ".*")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range append(slices.Sorted(slices.Values(full)), path(run)) {
				text, err := os.ReadFile(name)
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
				values = append(values, strings.Fields(string(text))...)
			}
			return values
		},
	}
}
