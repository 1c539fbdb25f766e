package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
)

// numbers is a list of n numbers, as filters write it.
func numbers(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }

// costly is a filter that costs what one evaluation may cost, some 20 ms, and slow one that costs
// some 2 ms and matches. Each i makes another one.
func costly(i int) string {
	return fmt.Sprintf("%[1]s.all(a, %[1]s.all(b, %[1]s.all(c, a + b + c + key._id > %[2]d)))", numbers(60), i-1000)
}

func slow(i int) string {
	return fmt.Sprintf("%[1]s.all(a, %[1]s.all(b, a + b + key._id > %[2]d))", numbers(20), i-1000)
}

// tenants are a hostile and an honest identity.
func tenants(t *testing.T, cfg gateway.Config) gateway.Config {
	t.Helper()
	return newList(t, "hostile name=hostile namespace=*", "honest name=honest namespace=*").config(cfg)
}

// by is a hello of a subscriber with filters, whose batches count as acknowledged when they have
// been sent.
func by(subscriber string, filters ...string) *streampb.Hello {
	h := named(subscriber)
	h.Subscriptions = nil
	for i, f := range filters {
		h.Subscriptions = append(h.Subscriptions, &streampb.Subscription{Id: fmt.Sprint(i), Db: "shop", Coll: "orders", Filter: f})
	}
	return h
}

func TestCostlyFiltersHarmNobodyElse(t *testing.T) {
	server := tenants(t, gateway.Config{})
	w := newWorld(t, options{server: server, hub: delivery.Config{Snapshots: shelf(1)}})
	filters := make([]string, 300)
	for i := range filters {
		filters[i] = costly(i)
	}
	honest := w.openAs("honest", by("honest", "key._id == 7"))
	next(honest, (*streampb.ConnectResponse).GetBatch)
	hostile := w.openAs("hostile", by("hostile", filters...))
	next(hostile, (*streampb.ConnectResponse).GetBatch)
	w.until("both are on the live path", func() bool { return w.node.Hub().Load().Live == 2 })
	for range 20 { // 300 evaluations of each take seconds
		w.write(1, 0)
		honest.events(1)
	}
	// It is told which filter it is, and then that its session is over.
	var notice *streampb.Notice
	for notice.GetKind() != "filter_suspended" {
		notice = next(hostile, (*streampb.ConnectResponse).GetNotice)
	}
	if notice.GetCode() != string(fault.SessionFilterCostly) || notice.GetSubscription() == "" {
		t.Errorf("%v", notice)
	}
	if code, reason, text := hostile.ends(); code != codes.ResourceExhausted || reason != string(fault.SessionFilterCostly) || !strings.Contains(text, "cheaper") {
		t.Errorf("%s %s %s", code, reason, text)
	}
	// The same filter is refused for a while, to that identity alone.
	i := slices.IndexFunc(filters, func(f string) bool { return strings.HasSuffix(f, "> "+threshold(notice.GetSubscription())+")))") })
	for token, want := range map[string]string{"hostile": string(fault.SessionFilterCostly), "honest": ""} {
		again := w.openAs(token, by("again "+token, filters[i], "key._id == 7"))
		if _, reasons := again.answers(2); reasons[0] != want || reasons[1] != "" {
			t.Errorf("%s: %v", token, reasons)
		}
	}
	// Pages of documents count with the sessions of their identity.
	pages := server.Access.Handler(gateway.NewPages(gateway.EventsConfig{Cluster: "c", Accounts: access.NewAccounts(access.Defaults{})}, w.node))
	for token, want := range map[string]fault.Code{"hostile": fault.SessionFilterCostly, "honest": fault.FilterCost} {
		query := url.Values{"db": {"shop"}, "coll": {"orders"}, "filter": {filters[i]}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/snapshot?"+query.Encode(), nil)
		r.RemoteAddr = "127.0.0.1:1" // tokens need TLS or loopback
		r.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		if pages.ServeHTTP(answer, r); !strings.Contains(answer.Body.String(), string(want)) {
			t.Errorf("%s: %d %s", token, answer.Code, answer.Body)
		}
	}
}

// A filter tells nothing of the other name of a rename, which its identity may not read.
func TestFilterOfARenameSeesTheNameThatItSelects(t *testing.T) {
	w := newWorld(t, options{server: newList(t, "tenant name=tenant namespace=shop.orders", "operator name=operator namespace=*").config(gateway.Config{})})
	filters := map[string]string{"all": "", "own": "ns.coll == 'orders'", "other": "ns.coll != 'orders'", "spelt": "ns.coll.startsWith('pay')"}
	open := func(token, coll string) *session {
		h := named(token)
		h.Subscriptions = nil
		for id, filter := range filters {
			h.Subscriptions = append(h.Subscriptions, &streampb.Subscription{Id: id, Db: "shop", Coll: coll, Filter: filter})
		}
		s := w.openAs(token, h)
		next(s, (*streampb.ConnectResponse).GetBatch)
		return s
	}
	tenant, operator := open("tenant", "orders"), open("operator", "")
	for _, renamed := range []changetest.Event{{Coll: "payroll", To: "orders"}, {Coll: "orders", To: "payroll"}} {
		renamed.Op, renamed.Keyless = "rename", true
		w.source.Append(renamed)
		for s, want := range map[*session]string{tenant: "all own", operator: "all other own spelt"} {
			got := s.events(1)[0].GetSubscriptions()
			if slices.Sort(got); strings.Join(got, " ") != want {
				t.Errorf("%s to %s: %v, want %s", renamed.Coll, renamed.To, got, want)
			}
		}
	}
}

// threshold is the number that a costly filter has at its end.
func threshold(id string) string {
	var i int
	_, _ = fmt.Sscan(id, &i)
	return fmt.Sprint(i - 1000)
}

// Ten identities, each with a hundred filters that stay just below what one evaluation may cost,
// would take a second of each event.
func TestTenHostileIdentitiesHarmNobodyElse(t *testing.T) {
	const identities, filters, events = 10, 100, 100
	lines := []string{"honest name=honest namespace=*"}
	for i := range identities {
		lines = append(lines, fmt.Sprintf("hostile-%d name=hostile-%[1]d namespace=*", i))
	}
	w := newWorld(t, options{server: newList(t, lines...).config(gateway.Config{})})
	honest := w.openAs("honest", by("honest", "key._id == 7"))
	next(honest, (*streampb.ConnectResponse).GetBatch)
	for i := range identities {
		var all []string
		for j := range filters {
			all = append(all, fmt.Sprintf("%[1]s.all(a, %[1]s.all(b, a + b + key._id > %[2]d))", numbers(15), j-1000))
		}
		next(w.openAs(fmt.Sprint("hostile-", i), by(fmt.Sprint("hostile ", i), all...)), (*streampb.ConnectResponse).GetBatch)
	}
	w.until("all are on the live path", func() bool { return w.node.Hub().Load().Live == identities+1 })
	var took []time.Duration
	for range events {
		begun := time.Now()
		w.write(1, 0)
		honest.events(1)
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	t.Logf("an event takes %s, 90 %% %s, at most %s", took[events/2], took[events*9/10], took[events-1])
	if l := w.node.Hub().Load(); l.Live != 1 {
		t.Errorf("%+v", l)
	}
}

// A session whose filters are too costly for the live path gets everything, by itself.
func TestSessionOffTheLivePathMissesNothing(t *testing.T) {
	const n = 100
	w := newWorld(t, options{server: tenants(t, gateway.Config{})})
	s := w.openAs("hostile", by("s", slow(0), "key._id == 7"))
	next(s, (*streampb.ConnectResponse).GetBatch)
	w.until("it is on the live path", func() bool { return w.node.Hub().Load().Live == 1 })
	w.write(n, 0)
	for _, e := range s.events(n) {
		if len(e.GetSubscriptions()) != 2 {
			t.Fatalf("matched %v", e.GetSubscriptions())
		}
	}
	if l := w.node.Hub().Load(); l.Live != 0 || l.CatchingUp != 1 {
		t.Errorf("%+v", l)
	}
}

// A session that ends because of a filter ends at its last position: without the filter nothing is
// missing.
func TestSuspendedFilterLosesNothing(t *testing.T) {
	const n = 400
	w := newWorld(t, options{server: tenants(t, gateway.Config{})})
	first := w.openAs("hostile", hello(func(h *streampb.Hello) {
		h.Subscriber = "s"
		h.Subscriptions = []*streampb.Subscription{{Id: "all"}, {Id: "costly", Filter: costly(0)}}
	}))
	next(first, (*streampb.ConnectResponse).GetBatch)
	w.write(n, 0)
	got := 0
	for {
		r, err := first.take()
		if err != nil {
			if _, reason, _ := explained(err); reason != string(fault.SessionFilterCostly) {
				t.Fatal(err)
			}
			break
		}
		if b := r.GetBatch(); b != nil {
			got += len(b.GetEvents())
			first.ack(b.GetSeq())
		}
	}
	if got == n {
		t.Fatal("it has got everything before it was suspended")
	}
	second := w.openAs("hostile", hello(func(h *streampb.Hello) {
		h.Subscriber, h.Cluster, h.Position, h.PartitionCount = "s", "c", first.to, partitions
	}))
	second.events(n - got)
	w.write(1, 0)
	second.events(1)
}

func TestEventStreamIsToldOfACostlyFilter(t *testing.T) {
	w := newWorld(t, options{})
	query := "?filter=" + url.QueryEscape(costly(0))
	r := w.get(query, "")
	honest := w.get("", "")
	w.write(300, 0)
	for range 300 {
		event(t, honest)
	}
	var kinds []string
	for {
		e, err := r.Next()
		if err != nil {
			break
		}
		if e.Event != "filter_suspended" && e.Event != "error" {
			continue
		}
		var told struct{ Code fault.Code }
		if err := json.Unmarshal(e.Data, &told); err != nil || told.Code != fault.SessionFilterCostly {
			t.Errorf("%s: %s", e.Event, e.Data)
		}
		kinds = append(kinds, e.Event)
	}
	if !slices.Equal(kinds, []string{"filter_suspended", "error"}) {
		t.Errorf("told %v", kinds)
	}
	resp := w.do(query, "")
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(text), string(fault.SessionFilterCostly)) {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

// heap returns what is in use after a collection.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// classes is a filter with n patterns, each of which is compiled to 120 KB.
func classes(n, i int) string {
	return strings.Repeat(`key._id.matches("^\\pL{20}$") || `, n) + fmt.Sprintf("key._id == %d", i)
}

func TestFiltersTakeBoundedMemory(t *testing.T) {
	const sessions, most = 40, 8 << 20
	accounts := access.NewAccounts(access.Defaults{})
	accounts.MaxFilterBytes = most
	w := newWorld(t, options{server: tenants(t, gateway.Config{Accounts: accounts})})
	open := func(token, name, filter string) string {
		t.Helper()
		ctx, cancel := context.WithCancel(bearing(t.Context(), token))
		_, reasons := w.open(ctx, by(name, filter)).answers(1)
		if reasons[0] != "" {
			cancel() // a connection has so many calls
		} else {
			t.Cleanup(cancel)
		}
		return reasons[0]
	}
	open("honest", "honest", "key._id.matches('a')") // makes what all share
	before := heap()
	for i := range sessions {
		if reason := open("hostile", fmt.Sprint("large", i), classes(100, i)); reason != string(fault.FilterTooLarge) {
			t.Fatalf("a filter of 20 MB: %q", reason)
		}
	}
	// Each for itself is small enough.
	taken, refused := 0, 0
	for i := range sessions {
		switch reason := open("hostile", fmt.Sprint("small", i), classes(4, i)); reason {
		case "":
			taken++
		case string(fault.AccessLimit):
			refused++
		default:
			t.Fatal(reason)
		}
	}
	if taken == 0 || refused == 0 || taken+refused != sessions {
		t.Errorf("%d were taken, %d refused", taken, refused)
	}
	// Equal filters count once.
	for i := range sessions {
		if reason := open("honest", fmt.Sprint("equal", i), classes(4, 0)); reason != "" {
			t.Fatal(reason)
		}
	}
	// Beside the bound: the connections, and what the node remembers of programs that nobody uses.
	if grown := heap() - before; grown > most+48<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
}

// What a client chooses for a subscription besides its filter is bounded in bytes, and charged to
// its identity: also what is replaced or given back, and what a heartbeat says.
func TestTextsOfSubscriptionsTakeBoundedMemory(t *testing.T) {
	const most = 8 << 20
	accounts := access.NewAccounts(access.Defaults{})
	accounts.MaxFilterBytes = most
	w := newWorld(t, options{server: tenants(t, gateway.Config{Accounts: accounts})})
	s := w.open(bearing(t.Context(), "hostile"), by("s"))
	fields := func(bytes int) (all []string) {
		for i := range 100 {
			all = append(all, fmt.Sprintf("%0*d", bytes, i))
		}
		return all
	}
	before := heap()
	for range 20 { // 4 MB of text each
		s.subscribe(&streampb.Subscription{Id: "long", Fields: fields(40_000)})
	}
	if _, reasons := s.answers(20); slices.ContainsFunc(reasons, func(r string) bool { return r != string(fault.SessionBadRequest) }) {
		t.Errorf("%v", reasons)
	}
	taken := 0
	subscribe := func(id string) string {
		s.subscribe(&streampb.Subscription{Id: id, Fields: fields(255)})
		_, reasons := s.answers(1)
		return reasons[0]
	}
	for i := range 600 {
		if reason := subscribe(fmt.Sprint(i)); reason == "" {
			taken++
		} else if reason != string(fault.AccessLimit) {
			t.Fatal(reason)
		}
	}
	if taken < 50 || taken > most/(2*25_500) {
		t.Errorf("%d were taken", taken)
	}
	if grown := heap() - before; grown > most+16<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	if reason := subscribe("another"); reason != string(fault.AccessLimit) {
		t.Errorf("one more: %q", reason)
	}
	for range 10 {
		if reason := subscribe("0"); reason != string(fault.AccessLimit) {
			t.Errorf("one that replaces another counts with it until it is there: %q", reason)
		}
	}
	s.unsubscribe("0", "1")
	for range 10 {
		if reason := subscribe("again"); reason != "" {
			t.Errorf("after some were given back: %q", reason)
		}
	}
	beat := &streampb.Heartbeat{}
	for i := range 32 {
		beat.Checks = append(beat.Checks, &streampb.Check{Name: fmt.Sprintf("%0256d", i), Text: strings.Repeat("x", 4096)})
	}
	for i := 0; subscribe(fmt.Sprint("fill", i)) == ""; i++ { // less than one of these is left
	}
	s.say(&streampb.ConnectRequest{Message: &streampb.ConnectRequest_Heartbeat{Heartbeat: beat}})
	if _, reason, _ := s.ends(); reason != string(fault.AccessLimit) {
		t.Errorf("a heartbeat with 140 kB: %q", reason)
	}
}

// What an identity may not have is not compiled for it: a filter beyond its quota is not even found
// to be wrong.
func TestQuotaComesBeforeTheFilter(t *testing.T) {
	w := newWorld(t, options{server: newList(t, "t name=a namespace=* max_subscriptions=1").config(gateway.Config{})})
	s := w.openAs("t", by("s", "key._id == 1", "wrong("))
	if _, reasons := s.answers(2); !slices.Equal(reasons, []string{"", string(fault.AccessLimit)}) {
		t.Errorf("%v", reasons)
	}
	// What is wrong takes no quota.
	s.unsubscribe("0")
	s.subscribe(&streampb.Subscription{Id: "x", Filter: "wrong("}, &streampb.Subscription{Id: "y"})
	if _, reasons := s.answers(2); !slices.Equal(reasons, []string{string(fault.FilterInvalid), ""}) {
		t.Errorf("%v", reasons)
	}
}

func TestSubscriptionsOfAHelloArePaced(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{SubscribeRate: 5, SubscribeBurst: 5}})
	begun := time.Now()
	s := w.open(t.Context(), by("s", "", "", "", "", ""))
	s.answers(5)
	s.subscribe(&streampb.Subscription{Id: "5"}, &streampb.Subscription{Id: "6"}, &streampb.Subscription{Id: "7"}, &streampb.Subscription{Id: "8"}, &streampb.Subscription{Id: "9"})
	s.answers(5)
	if took := time.Since(begun); took < 500*time.Millisecond {
		t.Errorf("ten subscriptions took %s", took)
	}
}

// A subscription under the ID of one that has ended has the checkpoint saved at once, which counts
// as many subscriptions.
func TestSubscriptionsThatSaveTheCheckpointArePaced(t *testing.T) {
	w := newWorld(t, options{server: gateway.Config{SubscribeRate: 1000, SubscribeBurst: 200}})
	s := w.connect(hello(nil))
	begun := time.Now()
	for range 6 {
		s.unsubscribe("again")
		s.subscribe(&streampb.Subscription{Id: "again"})
		s.answers(1)
	}
	if took := time.Since(begun); took < 350*time.Millisecond { // 6 × 102 - 200, of 1000 a second
		t.Errorf("six saves took %s", took)
	}
}

// All names of a request are looked up at once, but not those that its identity may not read.
func TestNamesOfAHelloAreLookedUpTogether(t *testing.T) {
	server := newList(t, "tenant name=tenant namespace=shop.*").config(gateway.Config{})
	var asked [][]change.Namespace
	kinds := func(_ context.Context, all []change.Namespace) (map[change.Namespace]change.NamespaceKind, error) {
		asked = append(asked, all)
		told := make(map[change.Namespace]change.NamespaceKind)
		for _, ns := range all {
			told[ns] = change.NamespaceCollection
			if ns.Coll == "view" {
				told[ns] = change.NamespaceView
			}
		}
		return told, nil
	}
	w := newWorld(t, options{server: server, hub: delivery.Config{Kinds: kinds}})
	h, want := named("s"), []string(nil)
	h.Subscriptions = []*streampb.Subscription{{Id: "view", Db: "shop", Coll: "view"}, {Id: "foreign", Db: "crm", Coll: "leads"}}
	want = append(want, string(fault.SessionUnwatched), string(fault.AccessForbidden))
	for i := range 500 {
		h.Subscriptions = append(h.Subscriptions, &streampb.Subscription{Id: fmt.Sprint(i), Db: "shop", Coll: fmt.Sprint(i)})
		want = append(want, "")
	}
	s := w.open(w.as("tenant"), h)
	if _, codes := s.answers(len(want)); !slices.Equal(codes, want) {
		t.Errorf("%v", codes)
	}
	if len(asked) != 1 || len(asked[0]) != 501 {
		t.Errorf("MongoDB was asked %d times", len(asked))
	}
}
