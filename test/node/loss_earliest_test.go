package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/client"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
)

// wrapped are servers whose log has wrapped, and how many entries go before each opening of a
// stream. Below 5.0 the oldest entry cannot be opened; beside writers any entry may be gone that
// was there a moment before.
func wrapped() map[string]devmongo.Config {
	besides := func(n int) func(*devmongo.Profile) {
		return func(p *devmongo.Profile) { p.TruncateBeforeOpening = n }
	}
	return map[string]devmongo.Config{
		"4.4": {Release: "4.4"}, "4.4, truncated beside": {Release: "4.4", Adjust: besides(3)},
		"7.0": {Release: "7.0"}, "7.0, truncated beside": {Release: "7.0", Adjust: besides(3)},
	}
}

// blind are servers whose log has wrapped and cannot be looked at.
func blind() map[string]devmongo.Config {
	servers := map[string]devmongo.Config{}
	for _, release := range []string{"4.4", "7.0"} {
		servers[release+" without local"] = devmongo.Config{Release: release, Adjust: func(p *devmongo.Profile) { p.DenyLocal = true }}
		servers[release+" behind mongos"] = devmongo.Config{Release: release, Adjust: func(p *devmongo.Profile) { p.Mongos = true }}
	}
	return servers
}

// wrap writes 400 documents in four portions, ten seconds of the log apart, into a log that then
// begins with the second portion, and returns the _ids of those that nobody may miss.
func (r *rig) wrap() (kept []string) {
	r.Helper()
	var begin uint64
	for i := range 4 {
		r.server.SetClockOffset(time.Duration(i+1) * 10 * time.Second)
		r.series(100*i, 100*(i+1))
		if i == 0 {
			begin = r.server.ClusterTime() + 1
		}
	}
	r.server.TruncateOplogBefore(begin)
	for i := 250; i < 400; i++ {
		kept = append(kept, fmt.Sprint(i))
	}
	return kept
}

// A first start at the beginning of a log that has wrapped begins with the oldest change that can
// be read, and tells of no loss.
func TestNodeStartsAtTheBeginningOfALogThatHasWrapped(t *testing.T) {
	t.Parallel()
	for name, cfg := range wrapped() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, cfg, "STREAMER_START_FROM=beginning-of-oplog")
			kept := r.wrap()
			n := r.begin()
			n.sees(kept...)
			n.once(kept...)
			if beside := cfg.Adjust != nil; !beside && (len(n.losses()) != 0 || len(n.gaps()) != 0) {
				t.Errorf("%d losses, %d gaps", len(n.losses()), len(n.gaps()))
			}
			n.wantBoundsBeforeWhatCame()
		})
	}
}

// wantBoundsBeforeWhatCame holds what is told of losses against what came: the document that came
// first stands right after the bound.
func (n *live) wantBoundsBeforeWhatCame() {
	n.Helper()
	for _, l := range n.losses() {
		if l.kind != "resync" || l.reason != string(gap.HistoryLost) {
			n.Errorf("loss %+v", l)
		}
	}
	if len(n.losses()) > 2 {
		n.Errorf("told of %d losses", len(n.losses()))
	}
	n.inOrder(n.T)
}

// A node that was stopped for longer than the log reaches back goes on with the oldest change that
// can be read, and its subscriber is told up to there, not up to now.
func TestNodeGoesOnWithWhatTheLogStillHas(t *testing.T) {
	t.Parallel()
	servers := wrapped()
	maps.Copy(servers, blind())
	for name, cfg := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, cfg)
			r.elsewhere(40) // for what goes beside the openings
			n := r.begin()
			n.until("the log is open", func() bool { return n.service.Log().Stats().Open })
			r.insert("before")
			n.sees("before")
			n.stopped()
			kept := r.wrap()
			n = r.begin()
			n.sees(kept...)
			n.once(kept...)
			n.hasGaps()
			if gaps := n.gaps(); len(gaps) < 1 || len(gaps) > 2 {
				t.Errorf("%d gaps", len(gaps))
			}
			n.wantBoundsBeforeWhatCame()
		})
	}
}

// A start at the oldest change of a log that cannot be looked at is refused with what to do, before
// anything is written, by sinks as by start_from: it would never be served. A sink that has begun
// goes on.
func TestStartAtTheOldestChangeOfAHiddenLogIsRefused(t *testing.T) {
	t.Parallel()
	for name, cfg := range blind() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, out := &landing{}, &endpoint{}
			out.answers(func(_ *http.Request, lines []string) int { l.add(lines...); return http.StatusOK })
			settings := toHTTP(t, out)
			r := sinkRigOn(t, cfg, "earliest", settings)
			refused := func(key string, more ...string) {
				t.Helper()
				service, err := r.assemble(more...)
				if err == nil {
					service.Close()
				}
				if fault.Of(err) != fault.LogHidden || !strings.Contains(err.Error(), key) {
					t.Errorf("%s: %v", key, err)
				}
				if _, err := r.store.Origin(t.Context()); !errors.Is(err, checkpoint.ErrNoOrigin) {
					t.Errorf("%s: an origin is written: %v", key, err)
				}
			}
			refused("sink out")
			r.sinkFrom("now", settings)
			refused("start_from", "STREAMER_START_FROM=beginning-of-oplog")
			n := r.beginWith(nil)
			n.status()
			r.writes(0, 10)
			n.arrived(l, 10)
			n.stopped()
			r.sinkFrom("earliest", settings)
			r.writes(10, 20)
			n = r.beginWith(nil)
			n.arrived(l, 20)
		})
	}
}

// A subscriber that asks for the earliest change gets what the log still has, and no word of a
// loss.
func TestGatewayStartsWithTheEarliestChange(t *testing.T) {
	t.Parallel()
	for name, cfg := range wrapped() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, cfg)
			n := r.begin()
			n.status()
			kept := r.wrap()
			p := n.connect(client.Config{Subscriber: "g", Start: client.StartEarliest}, client.Subscription{ID: "all", DB: "shop", Coll: "orders"})
			missed := make(map[string]bool, len(kept))
			for _, id := range kept {
				missed[fmt.Sprintf(`{"$numberInt":"%s"}`, id)] = true
			}
			for len(missed) > 0 {
				select {
				case id := <-p.changes:
					delete(missed, id)
				case told := <-p.notices:
					if loss, ok := told.(client.Resync); ok {
						t.Fatalf("told of %+v", loss)
					}
				case err := <-p.ended:
					t.Fatalf("the client ended: %v", err)
				case <-t.Context().Done():
				}
			}
		})
	}
}

// events follows a node's events, after an id if there is one.
func (r *rig) events(n *live, last string) *sse.Reader {
	r.Helper()
	_ = r.client.Database("shop").CreateCollection(r.Context(), "orders") // or its first event says that there is none; it may exist
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+n.service.Addr()+"/v1/events?db=shop", nil)
	if err != nil {
		r.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = resp.Body.Close() })
	return sse.NewReader(resp.Body)
}

// A client of server-sent events that comes back to a log that has wrapped is told up to where
// reading goes on, and gets what is there.
func TestClientOfEventsGoesOnWithWhatTheLogStillHas(t *testing.T) {
	t.Parallel()
	for name, cfg := range wrapped() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, cfg)
			n := r.begin()
			n.status()
			first := r.events(n, "")
			r.insert("before")
			m, err := first.Next()
			if err != nil {
				t.Fatal(err)
			}
			r.elsewhere(30) // the tail's ring does not matter: it is another node that the client comes back to
			n.stopped()
			kept := r.wrap()
			n = r.begin()
			n.status()
			again := r.events(n, m.ID)
			got, told := []string{}, 0
			for len(missing(got, kept)) > 0 {
				m, err := again.Next()
				if err != nil {
					t.Fatal(err)
				}
				var event struct {
					DocumentKey bson.M `json:"documentKey"`
				}
				switch m.Event {
				case "resync":
					told++
				case "":
					if err := json.Unmarshal(m.Data, &event); err != nil {
						t.Fatalf("%s: %v", m.Data, err)
					}
					got = append(got, fmt.Sprint(event.DocumentKey["_id"]))
				default:
					t.Fatalf("%+v", m)
				}
			}
			if told < 1 || told > 2 {
				t.Errorf("told of %d losses", told)
			}
		})
	}
}

// A first start at a time that the log does not reach back to is nobody's loss: the client gets
// what the log has, and nothing is recorded, told or counted, however often it is asked for.
func TestFreshStartBeforeTheLogIsNobodysLoss(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"4.4", "7.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, devmongo.Config{Release: release})
			r.wrap()
			n := r.beginWith(nil)
			n.status()
			for range 10 {
				resp := n.request(http.DefaultClient, "http://"+n.service.Addr()+"/v1/events?db=shop&start=2020-01-01T00:00:00Z")
				if m, err := sse.NewReader(resp.Body).Next(); err != nil || m.Event != "" {
					t.Fatalf("%+v, %v", m, err)
				}
			}
			stream, err := n.hello(n.conn(), "", func(h *streampb.Hello) { // it acknowledges nothing
				h.Subscriber, h.ProcessId, h.Start, h.Time = "g", "p", streampb.Start_START_TIME, timestamppb.New(time.Unix(1, 0))
			})
			for batches := 0; err == nil && batches < 2; {
				var m *streampb.ConnectResponse
				if m, err = stream.Recv(); m.GetBatch() != nil {
					batches++
				}
				if m.GetBatch().GetLoss() != nil {
					t.Errorf("over gRPC: %v", m)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if gaps, lost := r.gaps(), n.metric("streamer_log_losses_total"); len(gaps) != 0 || lost != 0 {
				t.Errorf("%d gaps, %v losses", len(gaps), lost)
			}
			if posted := n.posted(notice.Resync); len(posted) != 0 {
				t.Errorf("%v", posted)
			}
			for _, p := range n.status() {
				if p.State == health.Stale {
					t.Errorf("partition %d is stale", p.Partition)
				}
			}
		})
	}
}
