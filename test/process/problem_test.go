package process

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// mongoAway is the problem of a MongoDB that is away: the only one here that keeps nodes from
// serving.
const mongoAway = "mongodb STRM-MONGODB-UNREACHABLE"

// surfaces returns what each surface of a node says is wrong, in one form.
func (s *ship) surfaces() map[string][]string {
	s.fleet.t.Helper()
	said := map[string][]string{}
	for _, p := range decode[report](s.fleet.t, ask(s.fleet.t, s.url()+"/health").body).Problems {
		said["/health"] = append(said["/health"], fmt.Sprint(p.Subject, " ", p.Code))
	}
	for _, p := range decode[admin.Status](s.fleet.t, ask(s.fleet.t, s.url()+"/v1/status").body).Problems {
		said["/v1/status"] = append(said["/v1/status"], fmt.Sprint(p.Subject, " ", p.Code))
	}
	for _, m := range regexp.MustCompile(`(?m)^streamer_problem\{code="([^"]+)",severity="\w+",subject="([^"]+)"\} 1$`).FindAllStringSubmatch(ask(s.fleet.t, s.url()+"/metrics").body, -1) {
		said["/metrics"] = append(said["/metrics"], m[2]+" "+m[1])
	}
	said["/readyz and gRPC"] = []string{fmt.Sprint(ask(s.fleet.t, s.url()+"/readyz").status == http.StatusOK, " ", s.serves())}
	return said
}

// serves reports what the health service of gRPC says.
func (s *ship) serves() bool {
	s.fleet.t.Helper()
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.fleet.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(s.fleet.t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "streamer.v1.Gateway"}, grpc.WaitForReady(true))
	if err != nil {
		s.fleet.t.Fatal(err)
	}
	return answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
}

// planned returns what status --plan says is wrong.
func (f *fleet) planned() (said []string) {
	f.t.Helper()
	for _, p := range decode[struct{ Problems []health.Problem }](f.t, f.lab.result("status", "--plan", "-o", "json")).Problems {
		said = append(said, fmt.Sprint(p.Subject, " ", p.Code))
	}
	return said
}

// show waits until every surface of each node says exactly this.
func (f *fleet) show(what string, ships []*ship, want ...string) {
	f.t.Helper()
	begun := time.Now()
	for _, s := range ships {
		var said map[string][]string
		if !comes(func() bool {
			said = s.surfaces()
			for _, surface := range []string{"/health", "/v1/status", "/metrics"} {
				if !slices.Equal(said[surface], want) {
					return false
				}
			}
			ready := said["/readyz and gRPC"][0]
			return ready == "true true" && !slices.Contains(want, mongoAway) || ready == "false false" && len(want) > 0
		}) {
			f.t.Fatalf("%s: %s says %q, want %q", what, s.name, said, want)
		}
	}
	var printed []string
	if !comes(func() bool {
		printed = nil
		for _, p := range decode[report](f.t, f.lab.result("status", "-o", "json", "--address", ships[0].url())).Problems {
			printed = append(printed, fmt.Sprint(p.Subject, " ", p.Code))
		}
		return slices.Equal(printed, want)
	}) {
		f.t.Errorf("%s: streamer status says %q, want %q", what, printed, want)
	}
	f.t.Logf("%s: shown everywhere after %v", what, time.Since(begun).Round(time.Millisecond))
}

// stuck checks that while MongoDB is away no surface of a node shows a partition as well, or a lag
// as current.
func (f *fleet) stuck() {
	f.t.Helper()
	for _, s := range f.ships {
		for _, p := range decode[health.Report](f.t, ask(f.t, s.url()+"/health").body).Partitions {
			if p.Status != health.Stuck || p.Lag != nil || p.LastKnown == nil {
				f.t.Errorf("%s: /health says %+v", s.name, p)
			}
		}
		metrics := ask(f.t, s.url()+"/metrics").body
		if regexp.MustCompile(`streamer_partition_lag_seconds\{|streamer_partition_health\{partition="\d+",status="(healthy|idle)"\}`).MatchString(metrics) {
			f.t.Errorf("%s: the metrics say %s", s.name, metrics)
		}
		if text := f.lab.result("status", "--address", s.url()); !strings.Contains(text, "unknown, was ") {
			f.t.Errorf("%s: streamer status says %s", s.name, text)
		}
	}
	until(f.t, "every node shows the partitions of all as stuck", func() bool {
		well := func(state string) bool { return state != string(health.Stuck) }
		for _, s := range f.ships {
			if shown := decode[admin.Status](f.t, ask(f.t, s.url()+"/v1/status").body).Partitions; !slices.Equal(shown.StateNames, []health.Status{health.Stuck}) {
				return false
			}
		}
		var states []string
		for _, p := range decode[struct{ Partitions []struct{ State string } }](f.t, f.lab.result("status", "--plan", "-o", "json")).Partitions {
			states = append(states, p.State)
		}
		return len(states) > 0 && !slices.ContainsFunc(states, well)
	})
}

// refused gives commands to a node from which etcd is cut off. Each ends with etcd's code.
func (f *fleet) refused(s *ship, partition change.Partition, to string) {
	f.t.Helper()
	var asked []*process
	for _, command := range [][]string{
		{"drain", to}, {"handoff", fmt.Sprint(partition), "--to", to}, {"subscribers", "rewind", "old", "--to", "-1m"},
	} {
		asked = append(asked, f.lab.operate(append(command, "--yes", "--address", s.url())...))
	}
	begun := time.Now()
	for _, p := range asked {
		code := p.wait()
		if said := strings.Join(p.notes.all(), " "); code == 0 || !strings.Contains(said, "STRM-ETCD-UNREACHABLE") {
			f.t.Errorf("%v: exit code %d after %v: %s", p.cmd.Args[1:], code, time.Since(begun), said)
		}
	}
	f.t.Logf("%s: commands are refused within %v", s.name, time.Since(begun).Round(time.Millisecond))
}

// told counts the notices of a kind and code in the node's log.
func (s *ship) told(kind, code string) (n int) {
	for _, line := range s.notes.all() {
		if strings.Contains(line, "kind="+kind+" code="+code+" ") {
			n++
		}
	}
	return n
}

// toldOnce waits until the notice of a problem is in a log, and checks that no other node has told
// it too, unless each is cut off.
func (f *fleet) toldOnce(kind, code string) {
	f.t.Helper()
	count := func() (n int) {
		for _, s := range f.ships {
			n += s.told(kind, code)
		}
		return n
	}
	until(f.t, "the notice of "+code, func() bool { return count() > 0 })
	if n := count(); n != 1 {
		f.t.Errorf("%d notices %s %s", n, kind, code)
	}
}

// picture takes a picture of the page of a node in a real browser, if a folder for pictures is
// named (make browser): what it says is on one card.
func (s *ship) picture(name, text string) {
	s.fleet.t.Helper()
	folder := os.Getenv("STREAMER_TEST_PICTURES")
	if folder == "" {
		return
	}
	take := exec.CommandContext(s.fleet.t.Context(), "node", "../browser/case.mjs", s.url(), filepath.Join(folder, "case-"+name+".png"), text)
	if out, err := take.CombinedOutput(); err != nil {
		s.fleet.t.Errorf("%s: %v\n%s", name, err, out)
	}
}

// One broken sink, MongoDB away, etcd away, a frozen node: each is one problem, the same on every
// surface of every node, and nothing is left of it afterwards. A client with an old start is none.
// How long it takes depends on what else the machine does and is only logged; that operators hear
// of it within 5 s is wiring.TestProblemsAreToldInTime, by a clock that stands still meanwhile.
func TestOneProblemOnEverySurface(t *testing.T) {
	t.Parallel()
	direct, _ := newDevLab(t, "etcd")
	link, address := etcdtest.NewLink(t, strings.TrimPrefix(strings.Split(direct.uri, "/?")[0], "mongodb://"))
	l := direct.with("STREAMER_MONGODB_URI=mongodb://" + address + "/?directConnection=true&heartbeatFrequencyMS=500")
	f := fleetOn(t, l, 2, "STREAMER_RELIABILITY_CIRCUIT_BREAKER_TIMEOUT=1s")
	var broken, refuses atomic.Bool
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			panic(http.ErrAbortHandler)
		}
		if refuses.Load() {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(target.Close)
	f.config = filepath.Join(t.TempDir(), "streamer.yaml")
	letters := filepath.Join(t.TempDir(), "letters")
	if err := os.Mkdir(letters, 0o700); err != nil {
		t.Fatal(err)
	}
	settings := "sinks:\n  - name: hook\n    type: http\n    dead_letter: '" + letters + "/hook.jsonl'\n    subscriptions: [{namespace: '" + l.database + ".*'}]\n    http: {url: '" + target.URL + "', secret: '" + strings.Repeat("s", 32) + "', allow: [127.0.0.0/8]}\n"
	if err := os.WriteFile(f.config, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	f.begin()
	f.show("nothing is wrong", f.ships)
	stop := f.write(50)
	defer stop()
	old := follow(t, f.ships[0].url()+"/v1/events?subscriber=old&start=earliest&db="+l.database)
	if !old.comes("data:") {
		t.Errorf("the client gets nothing: %q", old.all())
	}
	f.show("a client with an old start", f.ships)
	for _, s := range f.ships {
		for _, line := range s.notes.all() {
			if strings.Contains(line, "kind=problem ") {
				t.Errorf("told of a client with an old start: %s", line)
			}
		}
	}
	f.ships[0].picture("old-start", "Nothing needs attention")
	status := l.operate("status", "--watch", "--address", f.ships[0].url())
	status.awaitIn(status.output, "no problems")
	subscribers := l.operate("subscribers", "list", "--watch", "--address", f.ships[0].url())
	subscribers.awaitIn(subscribers.output, "old ")

	broken.Store(true)
	f.show("a sink is broken", f.ships, "sink/hook STRM-SINK-TARGET")
	f.toldOnce("problem", "STRM-SINK-TARGET")
	f.ships[0].picture("sink", "acknowledges nothing")
	status.awaitIn(status.output, "The target of sink hook acknowledges nothing.")
	subscribers.awaitIn(subscribers.output, "sink/hook ")
	broken.Store(false)
	f.show("the sink is well again", f.ships)
	f.toldOnce("problem_over", "STRM-SINK-TARGET")

	if err := os.RemoveAll(letters); err != nil {
		t.Fatal(err)
	}
	refuses.Store(true)
	f.show("a dead letter cannot be written", f.ships, "sink/hook STRM-SINK-WAITING")
	f.toldOnce("problem", "STRM-SINK-WAITING")
	for _, s := range f.ships {
		if text := ask(t, s.url()+"/metrics").body; !strings.Contains(text, `streamer_problem{code="STRM-SINK-WAITING",severity="warning",`) {
			t.Errorf("%s does not warn: %s", s.name, text)
		}
	}
	refuses.Store(false)
	f.show("the target takes everything again", f.ships)
	f.toldOnce("problem_over", "STRM-SINK-WAITING")

	heal := link.Cut()
	f.show("MongoDB is away", f.ships, mongoAway)
	until(t, "status --plan says the same", func() bool { return slices.Equal(f.planned(), []string{mongoAway}) })
	f.stuck()
	f.toldOnce("problem", "STRM-MONGODB-UNREACHABLE")
	f.ships[0].picture("mongodb", "MongoDB cannot be read")
	status.awaitIn(status.output, "MongoDB cannot be read")
	heal()
	f.show("MongoDB is back", f.ships)
	f.toldOnce("problem_over", "STRM-MONGODB-UNREACHABLE")

	looks := func(p *process, first string) (n int) {
		for _, line := range p.output.all() {
			if strings.HasPrefix(line, first) {
				n++
			}
		}
		return n
	}
	before := looks(status, "no problems")
	until(t, "they look again", func() bool { return looks(status, "no problems") > before && looks(subscribers, "SUBSCRIBER") > 1 })
	for _, p := range []*process{status, subscribers} {
		p.signal(os.Interrupt)
		if code := p.wait(); code != 0 {
			t.Errorf("%v: exit code %d: %q", p.cmd.Args[1:], code, p.notes.all())
		}
	}

	partition, _, to := f.elsewhere()
	var heals []func()
	for _, s := range f.ships {
		heals = append(heals, s.link.Cut())
	}
	for _, s := range f.ships { // before and after it is known that etcd is away
		f.refused(s, partition, to)
	}
	f.show("etcd is away", f.ships, "etcd STRM-ETCD-UNREACHABLE")
	f.refused(f.ships[0], partition, to)
	for _, s := range f.ships { // each for itself: they cannot hear each other
		until(t, s.name+" tells that etcd is away", func() bool { return s.told("problem", "STRM-ETCD-UNREACHABLE") == 1 })
	}
	for _, s := range f.ships { // what it shows of the others is old, and it says so
		until(t, s.name+" says how old its view of the cluster is", func() bool {
			return decode[admin.Status](t, ask(t, s.url()+"/v1/status").body).ViewAge > 1
		})
	}
	f.ships[0].picture("etcd", "etcd does not answer")
	for _, heal := range heals {
		heal()
	}
	f.show("etcd is back", f.ships)
	if moved := f.movements(); len(moved.Pinned) > 0 || len(moved.Drained) > 0 {
		t.Errorf("what was refused has happened: %+v", moved)
	}
	until(t, "the end of etcd's outage is told", func() bool {
		return f.ships[0].told("problem_over", "STRM-ETCD-UNREACHABLE")+f.ships[1].told("problem_over", "STRM-ETCD-UNREACHABLE") > 0
	})
	for _, s := range f.ships { // also where the lease ends before etcd has been away for long
		if n := s.told("problem", "STRM-NODE-DETACHED"); n > 0 {
			t.Errorf("%s tells %d times that it is detached beside that etcd is away", s.name, n)
		}
	}

	frozen, _ := f.owning(false)
	others := slices.DeleteFunc(slices.Clone(f.ships), func(s *ship) bool { return s == frozen })
	frozen.signal(syscall.SIGSTOP)
	f.show("a node is frozen", others, "nodes STRM-NODE-MISSING")
	f.toldOnce("problem", "STRM-NODE-MISSING")
	until(t, "status --plan says the same", func() bool { return slices.Equal(f.planned(), []string{"nodes STRM-NODE-MISSING"}) })
	others[0].picture("frozen", "No heartbeat comes from")
	for _, kind := range []string{"dead", "degraded", "breaker_opened", "component_down"} { // what merely happened
		for _, s := range others {
			for _, line := range s.notes.all() {
				if strings.Contains(line, "kind="+kind+" ") && !strings.Contains(line, "level=INFO") {
					t.Errorf("%s pages beside the problem: %s", kind, line)
				}
			}
		}
	}
	frozen.signal(syscall.SIGCONT)
	f.show("it goes on", f.ships)
	f.toldOnce("problem_over", "STRM-NODE-MISSING")
}
