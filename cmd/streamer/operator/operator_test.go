package operator

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
	"github.com/mongostream/streamer/internal/leaktest"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/streamer"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("XDG_CONFIG_HOME", "/nowhere"); err != nil { // not the contexts of the developer
		panic(err)
	}
	leaktest.Main(m)
}

// A fixture is a cluster without a running node, and its operator.
type fixture struct {
	*testing.T

	conn        *backend.Conn
	mongo       *mongodb.Client
	first, last change.Position
}

// newFixture makes a cluster with an exclusive subscriber and a shared one, of which one partition
// has no checkpoint. The operator's environment leads there.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	d := &fixture{T: t}
	uri := devmongotest.URI(t)
	d.mongo = mongodbtest.Dial(t, uri)
	for key, value := range map[string]string{
		"MONGODB_URI": uri, "RELIABILITY_CHECKPOINT_DATABASE": mongodbtest.Database(t, d.mongo), "ETCD_ENDPOINTS": etcdtest.Endpoints(t)[0],
		"ETCD_PREFIX": "/" + strings.ToLower(rand.Text()), "CLUSTER_PARTITIONS": "2", "CLUSTER_ID": "c",
		"HTTP_LISTEN": "127.0.0.1:1", // not the node that somebody runs at the default address
	} {
		t.Setenv("STREAMER_"+key, value)
	}
	cfg, err := config.Load("", os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	d.conn = backend.New(cfg, "test", nil)
	t.Cleanup(d.conn.Close)
	if err := d.conn.OpenStore(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, known, err := d.mongo.FirstEntry(t.Context())
	if err != nil || !known {
		t.Fatal(known, err)
	}
	things := d.mongo.Driver().Database(mongodbtest.Database(t, d.mongo)).Collection("things")
	for i := range 5 {
		if _, err := things.InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}}); err != nil {
			t.Fatal(err)
		}
	}
	last, err := d.mongo.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.first, d.last = change.At(first), change.At(last)
	source, err := d.mongo.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.conn.EnsureOrigin(t.Context(), source, func(context.Context) (checkpoint.Origin, error) {
		return checkpoint.Origin{Cluster: rand.Text(), Incarnation: 1, Partitions: 2, Source: source, Start: first, At: time.Now(), By: "n"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.conn.Store.ClaimName(t.Context(), checkpoint.Claim{Process: "p", Started: time.Now(), Node: "a", By: "ann"}, checkpoint.Checkpoint{
		Key: checkpoint.Key{Subscriber: "gateway/orders"}, Position: d.last, Partitions: 2, At: time.Now(), By: "a", Reason: checkpoint.ReasonBegin,
	})
	if err == nil {
		err = d.conn.Store.Put(t.Context(), checkpoint.Checkpoint{
			Key: checkpoint.Key{Subscriber: "stdout", Shared: true, Partition: 1}, Position: d.last, Partitions: 2, At: time.Now(), By: "a", Reason: checkpoint.ReasonFinal,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// command gives a command, and returns what it prints.
func (d *fixture) command(args ...string) (string, error) {
	d.Helper()
	var text bytes.Buffer
	root := &cobra.Command{Use: "streamer", SilenceErrors: true, SilenceUsage: true}
	root.SetFlagErrorFunc(FlagError)
	root.PersistentPreRunE = checkFlagGroups
	root.AddCommand(Commands()...)
	root.SetArgs(args)
	root.SetOut(&text)
	root.SetErr(&text)
	err := root.ExecuteContext(d.Context())
	return text.String(), err
}

// result gives a command, and reads what it prints in JSON.
func (d *fixture) result(into any, args ...string) {
	d.Helper()
	text, err := d.command(append(args, "-o", "json")...)
	if err == nil {
		err = json.Unmarshal([]byte(text), into)
	}
	if err != nil {
		d.Fatalf("%v: %v: %s", args, err, text)
	}
}

// checkpoints returns where the subscribers are, and of which generation.
func (d *fixture) checkpoints() map[string]string {
	d.Helper()
	all, err := d.conn.Store.List(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	by := make(map[string]string)
	for _, c := range all {
		by[c.Key.String()] = fmt.Sprint(c.Position, c.Positions, c.Generation)
	}
	return by
}

// A sole subscriber is connected to a node.
type sole string

func (s sole) Subscribers() []streamer.SubscriberStatus {
	return []streamer.SubscriberStatus{{Name: string(s), Live: true, Partitions: 2, CreditEvents: 1, CreditBytes: 1}}
}

func (s sole) SharedLag(string) (float64, bool) { return 0, false }

func TestSubscribersAreListedWithWhatANodeTells(t *testing.T) {
	d := newFixture(t)
	node := httptest.NewServer(http.NewServeMux())
	t.Cleanup(node.Close)
	mux := node.Config.Handler.(*http.ServeMux)
	mux.Handle("GET /v1/subscribers", access.Everybody().Handler(admin.ServeSubscribers("a", sole("stdin"), d.conn.Store, d.mongo, slog.New(slog.DiscardHandler))))
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"cluster":"c","nodes":[{"node":"b","gateways":["gateway/orders"]}]}`))
	})
	var list struct {
		admin.SubscriberList
		NodeError   string              `json:"node_error"`
		ConnectedAt map[string][]string `json:"connected_at"`
	}
	d.result(&list, "subscribers", "list", "--address", node.URL)
	if len(list.Subscribers) != 3 || list.NodeError != "" || list.Node != "a" || list.LogError != "" {
		t.Fatalf("%+v", list)
	}
	orders, stdin, stdout := list.Subscribers[0], list.Subscribers[1], list.Subscribers[2]
	if orders.Subscriber != "gateway/orders" || orders.Connected == nil || *orders.Connected || orders.Lag == nil || orders.Behind == nil || orders.HeadRoom != nil {
		t.Errorf("%+v", orders)
	}
	if stdin.Session == nil || !*stdin.Connected || stdin.Position != nil || stdout.Connected != nil || stdout.Without != 1 || stdout.Kind != admin.Shared {
		t.Errorf("%+v, %+v", stdin, stdout)
	}
	text, err := d.command("subscribers", "list", "-o", "wide", "--address", node.URL)
	for _, want := range []string{"gateway/orders", "p at a as ann", "yes, at b", "yes, live", "begins at"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("no %q, %v:\n%s", want, err, text)
		}
	}
	if asked, err := d.command("subscribers", "delete", "gateway/orders", "--dry-run", "-o", "json", "--address", node.URL); err != nil || !strings.Contains(asked, `"connected_at": "b"`) {
		t.Errorf("%v: %s", err, asked)
	}
	if asked, err := d.command("subscribers", "delete", "gateway/orders", "--address", node.URL); !strings.Contains(fmt.Sprint(asked, err), "Subscriber gateway/orders is connected at node b, and its session ends.") {
		t.Errorf("%v: %s", err, asked)
	}
	elsewhere := http.NewServeMux()
	elsewhere.Handle("GET /v1/subscribers", access.Everybody().Handler(admin.ServeSubscribers("b", sole("stdin"), d.conn.Store, d.mongo, slog.New(slog.DiscardHandler))))
	another := httptest.NewServer(elsewhere)
	t.Cleanup(another.Close)
	if asked, err := d.command("subscribers", "delete", "gateway/orders", "--address", another.URL); !strings.Contains(fmt.Sprint(asked, err), "No node tells whether it is connected: its last session began at node a") {
		t.Errorf("%v: %s", err, asked)
	}
	other := newFixture(t) // the environment is its now
	list.ConnectedAt = nil
	other.result(&list, "subscribers", "list", "--address", node.URL)
	if list.NodeError == "" || len(list.Subscribers) != 2 || list.ConnectedAt != nil {
		t.Errorf("a node of another cluster: %+v", list)
	}
	node.Close()
	if asked, err := d.command("subscribers", "delete", "gateway/orders", "--address", node.URL); !strings.Contains(fmt.Sprint(asked, err), "No node tells whether it is connected: ") {
		t.Errorf("%v: %s", err, asked)
	}
	list.NodeError = ""
	other.result(&list, "subscribers", "list", "--address", node.URL)
	if list.NodeError == "" || len(list.Subscribers) != 2 || list.Subscribers[0].Connected != nil || list.Subscribers[0].Lag == nil {
		t.Errorf("a node that is away: %+v", list)
	}
	if _, err := other.command("subscribers", "list", "--address", "8080"); fault.Of(err) != fault.CommandBadArgument {
		t.Errorf("%v", err)
	}
}

// A node that is named does a rewind: it plans, and after the question it moves and records it.
func TestNodeRewindsASubscriber(t *testing.T) {
	d := newFixture(t)
	looked := ""
	o := admin.Operations{Board: notice.NewBoard(notice.Config{}), Trusted: true, Logger: slog.New(slog.DiscardHandler), Movable: admin.Movable{
		Store: d.conn.Store, Source: d.mongo, Recorded: func(context.Context) error { return nil }, Rewound: func(name string) { looked = name },
	}}
	mux := http.NewServeMux()
	mux.Handle("GET /v1/subscribers/rewind", access.Parameters(o.ServeRewindPlan(), "subscriber", "to"))
	mux.Handle("POST /v1/subscribers/rewind", access.Parameters(o.ServeRewind(), "subscriber", "to"))
	node := httptest.NewServer(access.Everybody().Handler(mux))
	t.Cleanup(node.Close)
	rewind := func(more ...string) []string {
		return append([]string{"subscribers", "rewind", "gateway/orders", "--address", node.URL, "--to"}, more...)
	}
	before, to := d.checkpoints(), fmt.Sprintf("%d:%d", d.first.Time.T, d.first.Time.I)
	ancient := "82697E968000000001" + strings.Repeat("3C", 4<<10) + "04" // of a document with a long key
	var plan rewound
	d.result(&plan, rewind(to, "--dry-run")...)
	if plan.Done || plan.Moves() != 1 || plan.Reached != admin.Reached {
		t.Errorf("%+v", plan)
	}
	for _, refused := range []struct {
		args []string
		code fault.Code
	}{
		{rewind(to), fault.CommandUnconfirmed},
		{rewind(to, "--yes", "--partition", "1"), fault.CommandBadArgument},
		{rewind(to, "--yes", "--why", "because"), fault.CommandBadArgument},
		{rewind("1769860800:1", "--yes"), fault.CheckpointRewind}, // before the oplog
		{rewind(ancient, "--yes"), fault.CheckpointRewind},
		{rewind("{\n  \"_data\": \""+ancient+"\"\n}", "--yes"), fault.CheckpointRewind},
		{rewind("", "--yes"), fault.CommandBadArgument},
	} {
		if text, err := d.command(refused.args...); fault.Of(err) != refused.code {
			t.Errorf("%v: %v: %s", refused.args, err, text)
		}
	}
	if now := d.checkpoints(); !maps.Equal(now, before) || looked != "" {
		t.Errorf("%v; before %v", now, before)
	}
	var done rewound
	if d.result(&done, rewind("earliest", "--yes")...); !done.Done || !done.Announced || looked != "gateway/orders" {
		t.Errorf("%+v, the node looked at %q", done, looked)
	}
	if now := d.checkpoints(); maps.Equal(now, before) {
		t.Errorf("nothing has moved: %v", now)
	}
}

func TestSubscribersAreShown(t *testing.T) {
	d := newFixture(t)
	var shown struct {
		Checkpoints []admin.Checkpoint `json:"checkpoints"`
	}
	for _, tt := range []struct {
		args []string
		kind admin.Kind
	}{
		{[]string{"show", "gateway/orders"}, admin.Exclusive},
		{[]string{"history", "gateway/orders"}, admin.Exclusive},
		{[]string{"show", "stdout"}, admin.Shared},
		{[]string{"show", "stdout", "--partition", "1"}, admin.Shared},
		{[]string{"history", "stdout"}, admin.Shared},
		{[]string{"history", "stdout", "--partition", "1"}, admin.Shared},
	} {
		shown.Checkpoints = nil
		args := append([]string{"subscribers"}, tt.args...)
		d.result(&shown, args...)
		if len(shown.Checkpoints) != 1 || shown.Checkpoints[0].Kind != tt.kind || shown.Checkpoints[0].Position != admin.ShowPosition(d.last) {
			t.Errorf("%v: %+v", args, shown)
		}
		if text, err := d.command(args...); err != nil || !strings.Contains(text, admin.ShowPosition(d.last).String()) {
			t.Errorf("%v: %v: %s", args, err, text)
		}
	}
	for _, args := range [][]string{
		{"show"}, {"show", "nobody"}, {"show", "stdout", "--partition", "0"}, {"show", "stdout", "--partition", "2"}, {"show", "gateway/orders", "--partition", "1"},
		{"history", "nobody"}, {"history", "gateway/orders", "--partition", "0"}, {"delete", "nobody", "--yes"}, {"rewind", "stdout"},
		{"rewind", "nobody", "--to", d.first.Time.String()}, {"list", "-o", "yaml"},
	} {
		if text, err := d.command(append([]string{"subscribers"}, args...)...); fault.Of(err) != fault.CommandBadArgument {
			t.Errorf("%v: %v: %s", args, err, text)
		}
	}
	if _, err := d.command("checkpoint", "list"); err == nil {
		t.Error("there is still a command checkpoint")
	}
}

func TestRewindMovesASubscriberAndTellsTheNodes(t *testing.T) {
	d := newFixture(t)
	before := d.checkpoints()
	to := fmt.Sprintf("%d:%d", d.first.Time.T, d.first.Time.I)
	if text, err := d.command("subscribers", "rewind", "stdout", "--to", to); fault.Of(err) != fault.CommandUnconfirmed {
		t.Errorf("%v: %s", err, text)
	}
	if text, err := d.command("subscribers", "rewind", "stdout", "--to", to, "--dry-run"); err != nil || !strings.Contains(text, "to generation 1") {
		t.Errorf("%v: %s", err, text)
	}
	if _, err := d.command("subscribers", "rewind", "stdout", "--to", "1000000001:1", "--yes"); fault.Of(err) != fault.CheckpointRewind {
		t.Errorf("to what the oplog has no more: %v", err)
	}
	if now := d.checkpoints(); !maps.Equal(before, now) {
		t.Errorf("%v became %v", before, now)
	}
	var done struct {
		Done, Announced bool
		AnnounceError   string `json:"announce_error"`
	}
	d.result(&done, "subscribers", "rewind", "stdout", "--partition", "1", "--to", to, "--yes", "--why", "twice")
	past, err := d.conn.Store.History(t.Context(), checkpoint.Key{Subscriber: "stdout", Shared: true, Partition: 1})
	if err != nil || !done.Done || !done.Announced || past[0].Note != "twice" || past[0].Position.Compare(d.first) != 0 {
		t.Errorf("%+v, %+v, %v", done, past, err)
	}
	client, err := d.conn.Etcd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	heard, _, err := etcd.NewNoticeStore(client, etcd.NoticeConfig{Process: "n"}).Read(t.Context(), 0)
	if err != nil || len(heard) != 2 || heard[1].Kind != notice.KindRewound || heard[1].Fields["subscriber"] != "stdout" {
		t.Fatalf("%+v, %v", heard, err)
	}
	// The audit log says who has done what; it was written before anything was done, and not for a
	// dry run.
	if record := heard[0]; notice.Check(record) != nil || record.Kind != notice.KindOperated || record.Fields["by"] != operatorName() || record.At.IsZero() ||
		!strings.HasSuffix(record.Text, "streamer subscribers rewind stdout --output=json --partition=[1] --to="+to+" --why=twice --yes=true") {
		t.Errorf("%+v", record)
	}
}

func TestExportIsImportedAgain(t *testing.T) {
	d := newFixture(t)
	before := d.checkpoints()
	file := filepath.Join(t.TempDir(), "all.json")
	if text, err := d.command("subscribers", "export", file); err != nil || !strings.Contains(text, "2 checkpoints and 0 losses are in "+file) {
		t.Fatalf("%v: %s", err, text)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := d.command("subscribers", "export", file); fault.Of(err) != fault.CommandBadArgument {
		t.Errorf("a file that exists: %v", err)
	}
	if _, err := d.command("subscribers", "delete", "gateway/orders"); fault.Of(err) != fault.CommandUnconfirmed || !maps.Equal(before, d.checkpoints()) {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"gateway/orders", "stdout"} {
		if text, err := d.command("subscribers", "delete", name, "--yes"); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	if _, err := d.command("subscribers", "import", file); fault.Of(err) != fault.CommandUnconfirmed || len(d.checkpoints()) != 0 {
		t.Errorf("%v", err)
	}
	var done struct {
		Done        bool
		Checkpoints []admin.ImportStep
	}
	d.result(&done, "subscribers", "import", file, "--yes")
	if now := d.checkpoints(); !done.Done || len(done.Checkpoints) != 2 || done.Checkpoints[0].Move != admin.New || !maps.Equal(before, now) {
		t.Errorf("%+v: %v became %v", done, before, now)
	}
	if text, err := d.command("subscribers", "import", file, "--yes"); err != nil || !strings.Contains(text, "2 checkpoints left\n0 checkpoints left\n0 checkpoints are new") {
		t.Errorf("%v: %s", err, text)
	}
	if text, err := d.command("subscribers", "import", file, "--dry-run"); err != nil || !strings.Contains(text, "0 are new, 0 move forward, 0 back, 2 are unchanged\n") || strings.Contains(text, "gateway/orders") {
		t.Errorf("a dry run: %v: %s", err, text)
	}
}

func TestPartitionsAreCountedAnew(t *testing.T) {
	d := newFixture(t)
	if text, err := d.command("cluster", "repartition", "--to", "8", "--dry-run"); err != nil || !strings.Contains(text, "1 partitions") || !strings.Contains(text, "1 of 2: ") || strings.Contains(text, "2 of 2: ") {
		t.Errorf("%v: %s", err, text)
	}
	var done struct {
		Done   bool
		Stands admin.Origin
	}
	d.result(&done, "cluster", "repartition", "--to", "8", "--yes")
	if !done.Done || done.Stands.Partitions != 8 || done.Stands.Start != admin.ShowPosition(d.first) {
		t.Errorf("%+v", done)
	}
	t.Setenv("STREAMER_CLUSTER_PARTITIONS", "8")
	var shown struct {
		Checkpoints []admin.Checkpoint `json:"checkpoints"`
	}
	d.result(&shown, "subscribers", "history", "stdout", "--partition", "1") // what was of a partition may still be looked at
	if len(shown.Checkpoints) != 1 || shown.Checkpoints[0].Partitions != 2 {
		t.Errorf("%+v", shown)
	}
	var adopted struct{ Done bool }
	if d.result(&adopted, "cluster", "adopt", "--yes"); !adopted.Done {
		t.Errorf("%+v", adopted)
	}
}

func TestListNeedsNoConfigurationWhereANodeAnswers(t *testing.T) {
	d := newFixture(t)
	mux := http.NewServeMux()
	mux.Handle("GET /v1/subscribers", access.Everybody().Handler(admin.ServeSubscribers("a", sole("gateway/orders"), d.conn.Store, d.mongo, slog.New(slog.DiscardHandler))))
	node := httptest.NewServer(mux)
	t.Cleanup(node.Close)
	for _, variable := range os.Environ() { // the node's own
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "STREAMER_") {
			t.Setenv(name, value) // put back afterwards
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	var list admin.SubscriberList
	d.result(&list, "subscribers", "list", "--address", strings.TrimPrefix(node.URL, "http://"))
	if len(list.Subscribers) != 2 || list.Node != "a" || list.Subscribers[0].Lag == nil || list.Subscribers[0].HeadRoom != nil || !*list.Subscribers[0].Connected {
		t.Errorf("%+v", list)
	}
}

func TestMistypedFlagsAndCommandsAreNamedWithTheNearest(t *testing.T) {
	d := &fixture{T: t}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"status", "--adress", "127.0.0.1:8080"}, "streamer status: there is no flag --adress; did you mean --address?"},
		{[]string{"subscribers", "rewind", "a", "--partitions", "1"}, "there is no flag --partitions; did you mean --partition?"},
		{[]string{"status", "--nothing-like-it"}, "there is no flag --nothing-like-it"},
		{[]string{"status", "-x"}, "unknown shorthand flag: 'x'"},
		{[]string{"status", "--config", "n.yaml"}, "streamer status: there is no flag --config; it is called --file, or -f"},
		{[]string{"drain", "a", "-c", "n.yaml"}, "there is no flag -c; it is called --file, or -f"},
		{[]string{"replay", "-c", "n.yaml"}, "there is no flag -c; it is called --config, or -f"},
		{[]string{"status", "--url", "x"}, "there is no flag --url; it is called --address"},
		{[]string{"subscribers", "list", "--host", "x"}, "there is no flag --host; it is called --address"},
		{[]string{"sinks", "status", "--endpoint=x"}, "there is no flag --endpoint; it is called --address"},
		{[]string{"status", "--json"}, "there is no flag --json; it is called --output, or -o"},
		{[]string{"tail", "-n", "5"}, "there is no flag -n; it is called --count"},
		{[]string{"history", "a.b", "1", "-n", "5"}, "there is no flag -n; it is called --limit"},
		{[]string{"history", "a.b", "1", "--count", "5"}, "there is no flag --count; it is called --limit"},
		{[]string{"tail", "--limit", "5"}, "there is no flag --limit; it is called --count"},
		{[]string{"supervisor", "reports", "-n", "5"}, "there is no flag -n; it is called --last"},
		{[]string{"status", "-n", "5"}, "unknown shorthand flag: 'n'"},
		{[]string{"drain", "a", "--force"}, "there is no flag --force; it is called --yes, or -y"},
		{[]string{"status", "--address"}, "flag needs an argument: --address"},
		{[]string{"subscribers", "lst"}, `there is no command "lst" in "streamer subscribers"; did you mean list?`},
	} {
		_, err := d.command(tt.args...)
		if fault.Of(err) != fault.CommandBadArgument || !strings.HasSuffix(regexp.MustCompile(` in -\w$`).ReplaceAllString(err.Error(), ""), tt.want) {
			t.Errorf("%v: %v", tt.args, err)
		}
	}
	if entry, _ := fault.Lookup(fault.CommandBadArgument); strings.Contains(entry.Remedy, "partition") {
		t.Errorf("the remedy is about something else: %s", entry.Remedy)
	}
}

// An operator sees where changes take their time, as the node's page and metrics show it.
func TestStatusSaysWhereChangesTakeTheirTime(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	history := admin.NewHistory()
	for i := range 2 { // a mean is of the time between two samples
		history.Note(time.Now().Add(time.Duration(i)*admin.HistoryEvery), nil, nil, []admin.Stage{
			{Name: "mongodb", Seconds: 0.1 * float64(i), Count: uint64(i)}, {Name: "hub", Seconds: 0.0012345 * float64(i), Count: uint64(i)}, {Name: "transport", Seconds: 1, Count: 1},
		})
	}
	mux := http.NewServeMux()
	health.Node{
		Name: "a", Uptime: func() time.Duration { return time.Second }, Partitions: func() []health.Partition { return nil },
		Judge: func() health.Verdict { return health.Verdict{Status: health.Healthy} }, Stages: history.Stages,
	}.Handle(mux)
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("a command that shows no credentials asks for %s, which needs some", r.URL)
		w.WriteHeader(http.StatusUnauthorized)
	})
	node := httptest.NewServer(mux)
	t.Cleanup(node.Close)
	text, err := d.command("status", "--address", node.URL)
	if err != nil || !strings.Contains(text, "latency  100ms in MongoDB, 1.23ms in the node (means of 15s)") {
		t.Errorf("%v: %s", err, text)
	}
	var report health.Report
	if d.result(&report, "status", "--address", node.URL); len(report.Stages) != 2 || report.Stages["mongodb"] != 0.1 || report.Node != "a" {
		t.Errorf("%+v", report)
	}
}

// The state of the cluster is read from etcd: a node that is named would not be asked.
func TestPlanIsOfNoNode(t *testing.T) {
	d := newFixture(t)
	for _, of := range []string{"--plan", "--handoffs"} {
		if text, err := d.command("status", of, "--address", "http://127.0.0.1:1"); fault.Of(err) != fault.CommandBadArgument {
			t.Errorf("%s: %v: %s", of, err, text)
		}
	}
}

// A lag that is not current is never shown as if it were.
func TestStatusSaysWhenALagWasKnown(t *testing.T) {
	lag := 2.0
	at := time.Now().Add(-90 * time.Second)
	report := health.Report{Node: "a", Status: health.Unhealthy, Partitions: []health.Partition{
		{ID: 3, Status: health.Stuck, LastKnown: &health.LastKnown{At: at, Status: health.Healthy, Lag: &lag}},
	}}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 4, 1, ' ', 0)
	writeReport(w, report, false)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "stuck unknown, was 2s 1m3"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, &text)
	}
}

func TestStatusSaysOfAFreshOplogWhatIsTrue(t *testing.T) {
	report := health.Report{Node: "a", Status: health.Healthy}
	for i, room := range []float64{0, 0.4, 1, 502, -90} {
		report.Partitions = append(report.Partitions, health.Partition{ID: i, Status: health.Healthy, HeadRoom: &room})
	}
	report.Partitions = append(report.Partitions, health.Partition{ID: 5, Status: health.Healthy})
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 4, 1, ' ', 0)
	writeReport(w, report, false)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	for i, want := range []string{
		"0s", "400ms", "1s", "8m22s", "left the oplog 1m30s ago", "-",
	} {
		if row := fmt.Sprintf("%d healthy unknown 0.0 - %s", i, want); !slices.ContainsFunc(lines, func(l string) bool { return strings.Join(strings.Fields(l), " ") == row }) {
			t.Errorf("partition %d: no %q in\n%s", i, want, &text)
		}
	}
}
