package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
)

// command runs a command to its end.
func command(t *testing.T, args ...string) (p *process, output string) {
	t.Helper()
	p = start(t, launch{args: args})
	if code := p.wait(); code != 0 {
		t.Errorf("%v: exit code %d", args, code)
	}
	return p, strings.Join(p.output.all(), "\n")
}

func TestConfigCheckPassesWhatIsShippedAndFindsAMisspeltKey(t *testing.T) {
	t.Parallel()
	if _, output := command(t, "config", "check", "-f", filepath.Join("..", "..", "config.yaml")); output != "configuration ok" {
		t.Errorf("output %q", output)
	}
	path := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(path, []byte("cluster:\n  id: a\nreliability:\n  dedup:\n    enabeld: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, launch{args: []string{"config", "check", "-f", path}}).
		refused(fault.ConfigUnknownKey, path+":5: ", "reliability.dedup.enabeld", "did you mean reliability.dedup.enabled?")
}

func TestVersionIsThatOfTheBuild(t *testing.T) {
	t.Parallel()
	if _, output := command(t, "version"); output != "streamer "+testVersion {
		t.Errorf("output %q", output)
	}
	_, output := command(t, "version", "-o", "json")
	if v := decode[map[string]string](t, output); len(v) != 1 || v["version"] != testVersion {
		t.Errorf("output %q", output)
	}
}

func TestExplainKnowsEveryCode(t *testing.T) {
	t.Parallel()
	_, list := command(t, "explain")
	for _, e := range fault.Catalogue() {
		if !strings.Contains(list, string(e.Code)+" ") || !strings.Contains(list, e.Summary) {
			t.Errorf("%s is not listed", e.Code)
		}
	}
	entry, _ := fault.Lookup(fault.NodeRunning)
	_, output := command(t, "explain", strings.ToLower(string(entry.Code)))
	for _, want := range []string{string(entry.Code), entry.Summary, entry.Meaning, entry.Remedy} {
		if !strings.Contains(output, want) {
			t.Errorf("the explanation does not say %q", want)
		}
	}
	unknown := start(t, launch{args: []string{"explain", "STRM-NO-SUCH"}})
	if code := unknown.wait(); code != 2 || !unknown.noted("STRM-NO-SUCH") {
		t.Errorf("exit code %d for an unknown code", code)
	}
}

func TestTailShowsWhatHappens(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd")
	node := l.node()
	address := node.address()
	l.insert(0, 3) // before anybody looks
	tail := func(args ...string) *process {
		return start(t, launch{args: append([]string{"tail", "--address", address, "--db", l.database}, args...)})
	}
	asJSON, human, some := tail("-o", "json"), tail(), tail("--coll", "orders", "--op", "insert,delete")
	until(t, "three are connected", func() bool { return metric(t, address, "streamer_sse_clients") == 3 })

	l.insert(7, 8)
	if _, err := l.collection().UpdateByID(t.Context(), 7, bson.D{{Key: "$set", Value: bson.D{{Key: "city", Value: "Rīga"}}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.collection().DeleteOne(t.Context(), bson.D{{Key: "_id", Value: 7}}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*process{asJSON, human, some} {
		p.awaitIn(p.output, "delete")
		p.signal(syscall.SIGINT)
		if code := p.wait(); code != 0 {
			t.Errorf("exit code %d of a tail that is interrupted", code)
		}
	}
	if got, want := described(sightings(t, asJSON.output.all())), "insert 7, update 7, delete 7"; got != want {
		t.Errorf("JSON: %s; want %s", got, want)
	}
	ns := l.database + ".orders"
	want := [][]string{{"insert", ns, `7 {"_id":7}`}, {"update", ns, `7 {"city":"Rīga"}`}, {"delete", ns, "7"}}
	shows(t, human, want)
	shows(t, some, slices.Delete(want, 1, 2))

	file := filepath.Join(t.TempDir(), "out.ndjson")
	again := start(t, launch{args: []string{"replay", "--address", address, "--from", "earliest", "--to", time.Now().Add(time.Second).UTC().Format(time.RFC3339), "--file", file, "--db", l.database, "--coll", "orders"}})
	until(t, "the replay has come to its end", func() bool { // which a log at rest does not reach
		if _, err := l.collection().Database().Collection("others").InsertOne(t.Context(), bson.D{}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-again.ended:
			return true
		default:
			return false
		}
	})
	if code := again.wait(); code != 0 {
		t.Errorf("exit code %d of a replay", code)
	}
	content, err := os.ReadFile(file)
	if got, want := described(sightings(t, slices.Collect(strings.Lines(string(content))))), "insert 0, insert 1, insert 2, insert 7, update 7, delete 7"; err != nil || got != want {
		t.Errorf("replayed: %s; want %s; %v", got, want, err)
	}

	refused := start(t, launch{args: []string{"tail", "--address", address, "--op", "upsert"}})
	refused.refused(fault.SessionBadRequest, "upsert")
	node.kill()
	late := start(t, launch{args: []string{"tail", "--address", address}})
	if code := late.wait(); code != 3 || !late.noted("no node at "+address) {
		t.Errorf("exit code %d where no node is", code)
	}
}

// shows compares the lines of the human form, without their times.
func shows(t *testing.T, p *process, want [][]string) {
	t.Helper()
	lines := p.output.all()
	if len(lines) != len(want) {
		t.Errorf("%d lines, want %d: %q", len(lines), len(want), lines)
		return
	}
	for i, line := range lines {
		_, rest, _ := strings.Cut(line, " ")
		if strings.Contains(line, "\x1b") || strings.Join(strings.Fields(rest), " ") != strings.Join(want[i], " ") {
			t.Errorf("line %d is %q, want %q", i, line, want[i])
		}
	}
}

// A tail goes on behind what it has seen, whenever and however its node is restarted.
func TestTailMissesNothingWhileItsNodeIsRestarted(t *testing.T) {
	t.Parallel()
	listen := devmongotest.FreeAddress()
	l := newLab(t, "etcd").with("STREAMER_HTTP_LISTEN=" + listen)
	run := func() *process {
		p := l.node("--take-over")
		p.await(nodeRuns)
		return p
	}
	connected := func() bool { return metric(t, "http://"+listen, "streamer_sse_clients") == 1 }
	node := run()
	tail := start(t, launch{args: []string{"tail", "--address", "http://" + listen, "-o", "json", "--db", l.database}})
	until(t, "the tail is connected", connected)

	node.kill() // before the tail has seen anything
	l.insert(1, 3)
	node = run()
	tail.awaitIn(tail.output, `"documentKey":{"_id":2}`)

	node.kill()
	node = run()
	until(t, "the tail is connected again", connected)
	node.kill() // before this connection has told anything
	l.insert(3, 5)
	node = run()
	tail.awaitIn(tail.output, `"documentKey":{"_id":4}`)

	node.signal(syscall.SIGTERM)
	node.wait()
	l.insert(5, 7)
	node = run()
	tail.awaitIn(tail.output, `"documentKey":{"_id":6}`)
	tail.signal(syscall.SIGTERM)
	if code := tail.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got, want := described(sightings(t, tail.output.all())), "insert 1, insert 2, insert 3, insert 4, insert 5, insert 6"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if !tail.noted("reconnecting") {
		t.Error("it does not say that the connection was lost")
	}
	node.kill()
}
