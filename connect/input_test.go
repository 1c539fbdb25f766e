package connect_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redpanda-data/benthos/v4/public/service"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/connect"
	"github.com/mongostream/streamer/gateway/streampb"
)

var (
	errAway   = errors.New("the target is away")
	errBroken = status.Error(codes.Unavailable, "STRM-NODE-STOPPING: the node stops\nConnect to another node.")
)

// Batches that the engine accepts in another order are acknowledged when all before them are
// accepted, too.
func TestAcceptedBatchesAreAcknowledgedInOrder(t *testing.T) {
	for _, all := range []bool{true, false} {
		n := newNode(t)
		in, err := connect.NewInput(fmt.Sprintf("addresses: [%q]\nsubscriber: s\nmax_in_flight: 0\n", n.address))
		if err != nil {
			t.Fatal(err)
		}
		connected := make(chan error, 1)
		go func() { connected <- in.Connect(t.Context()) }()
		v := n.welcomed("a")
		if err := <-connected; err != nil {
			t.Fatal(err)
		}
		var seqs []uint64
		var accept []func()
		for _, place := range []string{"b1", "c1", "d1"} {
			seqs = append(seqs, v.batch(place, place))
			batch, ack, err := in.ReadBatch(t.Context())
			if err != nil || len(batch) != 1 {
				t.Fatal(batch, err)
			}
			accept = append(accept, func() {
				if err := ack(t.Context(), nil); err != nil {
					t.Error(err)
				}
			})
		}
		accept[2]()
		accept[1]()
		if all {
			accept[0]()
			v.acked(seqs[2])
		}
		if err := in.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := v.left(); !all && got >= seqs[0] {
			t.Errorf("batch %d is acknowledged, but nobody has accepted %d", got, seqs[0])
		}
	}
}

// A configuration that makes no sense is refused, with the key.
func TestConfigurationIsRefused(t *testing.T) {
	for keys, want := range map[string]string{
		"subscriber: s\naddresses: [localhost:1]":                          "",
		"addresses: [localhost:1]":                                         "subscriber",
		"subscriber: \"\"\naddresses: [localhost:1]":                       "subscriber: required",
		"subscriber: s\naddresses: []":                                     "Addresses: required",
		"subscriber: s\naddresses: [node:1]":                               "without TLS",
		"subscriber: s\naddresses: [node:1]\ntls: {enabled: true}":         "",
		"subscriber: s\naddresses: [node:1]\nplaintext: true\ntoken: x":    "token in plaintext",
		"subscriber: s\naddresses: [localhost:1]\ntoken: x\ntoken_file: y": "only one",
		"subscriber: s\naddresses: [localhost:1]\nstart: time":             "Time",
		"subscriber: s\naddresses: [localhost:1]\nstart_time: yesterday":   "start_time",
		"subscriber: s\naddresses: [localhost:1]\nbatching: {count: 10}":   "period is needed",
	} {
		in, err := connect.NewInput(keys)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", keys, err, want)
		}
		if in != nil {
			_ = in.Close(t.Context())
		}
	}
}

// What the target refuses comes again, before anything later.
func TestRejectedBatchComesAgainFirst(t *testing.T) {
	n := newNode(t)
	p := start(t, n, "")
	v := n.welcomed("a")
	v.batch("b1", "b1")
	p.next("b1").answer <- errAway
	last := v.batch("c1", "c1")
	p.next("b1").answer <- errAway
	p.next("b1").answer <- nil
	p.next("c1").answer <- nil
	v.acked(last)
}

// Where nothing matches, the checkpoint moves on with the log.
func TestQuietStreamIsAcknowledged(t *testing.T) {
	n := newNode(t)
	start(t, n, "")
	v := n.welcomed("a")
	v.acked(v.batch("d"))
}

// A session that breaks is followed by one that begins at what was accepted. What the engine has
// already is not delivered to it again.
func TestReconnectGoesOnAtWhatIsAccepted(t *testing.T) {
	n := newNode(t)
	p := start(t, n, "")
	v := n.welcomed("a")
	seq := v.batch("b1", "b1")
	p.next("b1").answer <- nil
	v.acked(seq)
	v.batch("c1", "c1")
	under := p.next("c1")
	v.close(errBroken)
	v = n.welcomed("b1")
	if string(v.hello.GetPosition()) != string(at("b1")) {
		t.Errorf("it goes on at %q", v.hello.GetPosition())
	}
	v.batch("c1", "c1")
	last := v.batch("d1", "d1")
	under.answer <- nil
	p.next("d1").answer <- nil
	v.acked(last)
	if !strings.Contains(p.lines.String(), "Failed to connect to streamer") && !strings.Contains(p.lines.String(), "session ended") {
		t.Errorf("nothing is said of the broken session:\n%s", p.lines)
	}
}

// A stopped pipeline has acknowledged what was accepted, and nothing else.
func TestStopAcknowledgesWhatWasAccepted(t *testing.T) {
	n := newNode(t)
	p := start(t, n, "")
	v := n.welcomed("a")
	seq := v.batch("b1", "b1")
	p.next("b1").answer <- nil
	v.acked(seq)
	v.batch("c1", "c1")
	p.next("c1") // it is not answered
	p.stopWithin(10 * time.Millisecond)
	if got := v.left(); got > seq {
		t.Errorf("batch %d is acknowledged", got)
	}
}

func (v *visit) loss() uint64 {
	v.t.Helper()
	now := timestamppb.New(time.Unix(1795407361, 0))
	return v.sendBatch(&streampb.Batch{To: at("c"), Loss: &streampb.Loss{
		Kind: streampb.Loss_KIND_RESYNC, From: now, To: now, Reason: "history_lost", Namespaces: []string{"shop.orders"}, Found: now, Advice: "Read the documents again.",
	}})
}

// At a loss the input stops, after everything before it was accepted and acknowledged, and says
// why. It delivers nothing after the loss.
func TestLossStopsTheInput(t *testing.T) {
	n := newNode(t)
	p := start(t, n, "")
	v := n.welcomed("a")
	before := v.batch("b1", "b1")
	loss := v.loss()
	v.batch("d1", "d1")
	p.next("b1").answer <- nil
	if got := v.left(); got < before || got >= loss {
		t.Errorf("batch %d is the last that is acknowledged; the loss is %d", got, loss)
	}
	p.logs("the input stops at a loss")
	p.logs("changes of [shop.orders] between 2026-11-23T04:16:01Z and 2026-11-23T04:16:01Z may have been missed (history_lost)")
	p.stop()
	select {
	case b := <-p.batches:
		t.Errorf("%q comes after the loss", b.places)
	case v := <-n.visits:
		t.Errorf("it connects again: %v", v.hello)
	default:
	}
}

// An input that has stopped at a loss stays stopped, however often the engine connects it.
func TestInputStaysStoppedAfterALoss(t *testing.T) {
	n := newNode(t)
	in, err := connect.NewInput(fmt.Sprintf("addresses: [%q]\nsubscriber: s\n", n.address))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(t.Context()) }()
	connects := func() <-chan error {
		connected := make(chan error, 1)
		go func() { connected <- in.Connect(t.Context()) }()
		return connected
	}
	connected := connects()
	v := n.welcomed("a")
	if err := <-connected; err != nil {
		t.Fatal(err)
	}
	v.loss()
	if batch, _, err := in.ReadBatch(t.Context()); !errors.Is(err, service.ErrNotConnected) {
		t.Fatalf("%d messages, %v", len(batch), err)
	}
	for range 3 {
		select {
		case err := <-connects():
			if err == nil || !strings.Contains(err.Error(), "the input stops at a loss") {
				t.Errorf("connected: %v", err)
			}
		case <-n.visits:
			t.Fatal("it connects again")
		}
	}
}

// With on_loss: continue the input goes on, and acknowledges the loss with what was before it.
func TestLossIsLoggedAndPassed(t *testing.T) {
	n := newNode(t)
	p := start(t, n, "  on_loss: continue\n")
	v := n.welcomed("a")
	v.batch("b1", "b1")
	v.loss()
	last := v.batch("d1", "d1")
	for got := ""; got != "b1d1"; {
		b := <-p.batches
		got += b.places
		b.answer <- nil
	}
	v.acked(last)
	p.logs("may have been missed (history_lost)")
}

// logs waits until the log has a text.
func (p *pipeline) logs(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(p.lines.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("the log has no %q:\n%s", text, p.lines)
		}
	}
}

// A process that another one has replaced must not take the name back.
func TestReplacedInputEnds(t *testing.T) {
	n := newNode(t)
	p := start(t, n, "")
	n.welcomed("a").close(status.Error(codes.AlreadyExists, "STRM-SESSION-REPLACED: another process has the name\nGive each its own."))
	select {
	case err := <-p.ended:
		if err != nil {
			t.Error(err)
		}
	case <-expired(t):
		t.Fatal("the pipeline does not end")
	}
	p.logs("STRM-SESSION-REPLACED")
	select {
	case <-n.visits:
		t.Error("it connects again")
	default:
	}
}

// The subscription is what is configured, and messages say what they are.
func TestMessagesHaveTheirMetadata(t *testing.T) {
	n := newNode(t)
	p := start(t, n, "  db: shop\n  coll: orders\n  ops: [insert, delete]\n  filter: doc.total > 1\n  fields: [total]\n  deletes: before\n  leaves: true\n  start: snapshot\n  on_loss: snapshot\n")
	v := n.welcomed("a")
	s := v.hello.GetSubscriptions()[0]
	if v.hello.GetSubscriber() != "s" || v.hello.GetStart() != streampb.Start_START_SNAPSHOT || s.GetDb() != "shop" || s.GetColl() != "orders" || strings.Join(s.GetOps(), ",") != "insert,delete" ||
		s.GetFilter() != "doc.total > 1" || strings.Join(s.GetFields(), ",") != "total" || s.GetDeletes() != streampb.Deletes_DELETES_BEFORE || !s.GetLeaves() ||
		s.GetOnLoss() != streampb.OnLoss_ON_LOSS_SNAPSHOT || s.GetFormat() != streampb.Format_FORMAT_JSON {
		t.Errorf("hello: %v", v.hello)
	}
	v.batch("b1", "b1")
	b := p.next("b1")
	want := map[string]string{
		"partition": "0", "operation": "insert", "db": "shop", "coll": "orders", "namespace": "shop.orders", "key": "b1", "snapshot": "false",
		"cluster_time": "2026-11-23T04:16:01Z", "version": strconv.FormatUint(1795407361<<32|6, 10),
	}
	for name, value := range want {
		if got, _ := b.batch[0].MetaGet(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
	if id, _ := b.batch[0].MetaGet("id"); id == "" {
		t.Error("no id")
	}
	if text, err := b.batch[0].AsBytes(); err != nil || string(text) != string(change("b1")) {
		t.Errorf("%s, %v", text, err)
	}
	b.answer <- nil
}

// Outputs make names of objects, and keys by which targets drop repetitions, of a message's id. So
// documents of a snapshot have ids of their own, although their position is one.
func TestMessagesHaveIDsOfTheirOwn(t *testing.T) {
	event := func(key string) *streampb.Event {
		return &streampb.Event{Position: at("b1"), Subscriptions: []string{"connect"}, Format: streampb.Format_FORMAT_JSON, Snapshot: true, Change: change(key)}
	}
	var first []string
	for range 2 {
		n := newNode(t)
		p := start(t, n, "  start: snapshot\n")
		v := n.welcomed("a")
		v.sendBatch(&streampb.Batch{To: at("b1"), Events: []*streampb.Event{event("b1"), event("c1")}})
		b := p.next("b1c1")
		var ids []string
		for _, m := range b.batch {
			id, _ := m.MetaGet("id")
			ids = append(ids, id)
		}
		b.answer <- nil
		if first == nil {
			first = ids
		}
		if ids[0] == ids[1] || !slices.Equal(ids, first) {
			t.Errorf("%q, and before %q", ids, first)
		}
	}
}

// A policy makes batches of several messages.
func TestPolicyMakesBatches(t *testing.T) {
	n := newNode(t)
	p := start(t, n, "  batching: {count: 2, period: 1h}\n")
	v := n.welcomed("a")
	last := v.batch("e1", "b1", "c1", "d1", "e1")
	p.next("b1c1").answer <- nil
	p.next("d1e1").answer <- nil
	v.acked(last)
}

// A rest waits no longer than the period of the policy, which counts from the batch before it: a
// slow machine makes other batches.
func TestPolicyKeepsNoRest(t *testing.T) {
	n := newNode(t)
	p := start(t, n, "  batching: {count: 2, period: 100ms}\n")
	v := n.welcomed("a")
	last := v.batch("d1", "b1", "c1", "d1")
	for got := ""; got != "b1c1d1"; {
		select {
		case b := <-p.batches:
			got += b.places
			b.answer <- nil
		case <-expired(t):
			t.Fatalf("only %q comes", got)
		}
	}
	v.acked(last)
}

// A policy whose processors remove all messages acknowledges them.
func TestPolicyThatRemovesEverything(t *testing.T) {
	n := newNode(t)
	p := start(t, n, "  batching: {count: 1, period: 1s, processors: [{mapping: 'root = if @key != \"d1\" { deleted() }'}]}\n")
	v := n.welcomed("a")
	v.batch("c1", "b1", "c1")
	last := v.batch("d1", "d1")
	p.next("d1").answer <- nil
	v.acked(last)
}
