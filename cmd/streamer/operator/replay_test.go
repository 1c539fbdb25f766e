package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/preflight"
	"github.com/mongostream/streamer/retention"
)

// replayLoss is a loss as nodes tell it.
const replayLoss = `{"notice":"resync","reason":"history_lost","namespaces":["shop.orders"],"lost_from":{"$timestamp":{"t":1767366300,"i":1}},"lost_to":{"$timestamp":{"t":1767366600,"i":1}}}`

// A replay into a file asks for its stretch and its selection, and the file has what the node sent,
// with ids, losses in their places. It appears whole, for its owner, and replaces no other unasked.
func TestReplayWritesAStretch(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	change := func(n int) string {
		return fmt.Sprintf(`{"operationType":"insert","clusterTime":{"$timestamp":{"t":%d,"i":1}},"documentKey":{"_id":%d}}`, 1767366000+n, n)
	}
	line := func(id, text string) string { return `{"id":"` + id + `",` + text[1:] + "\n" }
	var asked url.Values
	var resumed []string
	breaks, body := false, ""
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		asked = r.URL.Query()
		resumed = append(resumed, r.Header.Get("Last-Event-ID"))
		if breaks {
			fmt.Fprintf(w, "data: %s\nid: 1\n\ndata: %s\nid: half", change(1), change(2))
			breaks = false
			return
		}
		fmt.Fprint(w, body)
	}))
	t.Cleanup(node.Close)
	file := filepath.Join(t.TempDir(), "out.ndjson")
	run := func(more ...string) (r replayed, err error) {
		t.Helper()
		text, err := d.command(append([]string{"replay", "--address", node.URL, "--from", "2026-01-02T15:00:00Z", "--to", "2026-01-02T16:00:00Z", "--file", file, "-o", "json"}, more...)...)
		if at := strings.Index(text, "{\n"); at >= 0 { // after the progress
			text = text[at:]
			if broken := json.Unmarshal([]byte(text), &r); broken != nil {
				t.Fatalf("%s: %v", text, broken)
			}
		}
		return r, err
	}
	lines := func() string {
		t.Helper()
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	const end = "event: end\ndata: {\"message\":\"x\"}\nid: 9\n\n"
	body, breaks = "event: resync\ndata: "+replayLoss+"\nid: 2\n\ndata: "+change(2)+"\nid: 3\n\n"+end, true
	r, err := run("--namespace", "shop.orders", "--op", "insert", "--filter", "doc.v == 1")
	if want := line("1", change(1)) + line("2", replayLoss) + line("3", change(2)); lines() != want || r.Changes != 2 || r.Bytes != int64(len(want)) || len(r.Losses) != 1 {
		t.Errorf("%+v: %s", r, lines())
	}
	if ExitCode(err) != exitRefused || fault.Of(err) != fault.LogHistoryLost || !strings.Contains(err.Error(), "shop.orders") || !strings.Contains(err.Error(), "history_lost") {
		t.Errorf("a loss in the stretch: %v", err)
	}
	if want := "coll=orders&db=shop&end=2026-01-02T16%3A00%3A00Z&filter=doc.v+%3D%3D+1&op=insert&start=2026-01-02T15%3A00%3A00Z"; asked.Encode() != want {
		t.Errorf("asked for %s", asked.Encode())
	}
	if got := fmt.Sprint(resumed); got != "[ 1]" { // the change that was cut off is asked for again
		t.Errorf("resumed after %s", got)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	before := lines()
	body = "event: begin\ndata: {\"message\":\"the log begins at noon\"}\n\ndata: " + change(3) + "\nid: 4\n\n" + end
	if _, err := run(); fault.Of(err) != fault.CommandBadArgument || lines() != before {
		t.Errorf("over another file: %v", err)
	}
	if r, err := run("--force"); fault.Of(err) != fault.LogHistoryLost || !strings.Contains(err.Error(), "begins at noon") || lines() != line("4", change(3)) || r.Begins == "" {
		t.Errorf("%+v, %v", r, err)
	}
	body = "event: error\ndata: {\"code\":\"STRM-LOG-HISTORY-LOST\",\"message\":\"halted\"}\n\n"
	if _, err := run("--force"); fault.Of(err) != fault.LogHistoryLost || lines() != line("4", change(3)) {
		t.Errorf("a stretch that ends early: %v, %s", err, lines())
	}
	body = end
	if r, err := run("--force"); err != nil || r.Changes != 0 || lines() != "" {
		t.Errorf("nothing: %+v, %v", r, err)
	}
	left, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(left) != 1 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}

// What cannot be replayed is refused before anything is written.
func TestReplayRefusesWhatItCannotDo(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	file := filepath.Join(t.TempDir(), "out.ndjson")
	for _, args := range [][]string{
		{"--file", file},
		{"--from", "-1h"},
		{"--from", "yesterday-ish", "--file", file},
		{"--from", "-1h", "--to", "-2h", "--file", file},
		{"--from", "-2h", "--to", "soon", "--file", file},
		{"--from", "-2h", "--file", file, "--sink", "orders"},
		{"--from", "-2h", "--to", "-1h", "--sink", "orders"},
		{"--from", "-2h", "--filter", "true", "--sink", "orders"},
		{"--from", "-2h", "--file", file, "--namespace", "shop."},
		{"--from", "-2h", "--file", file, "--namespace", "shop.orders", "--db", "lab"},
		{"--from", "-2h", "--file", file, "--yes"},
		{"--from", "-2h", "--file", ""},
		{"--from", "-2h", "--sink", ""},
		{"--from", "-2h", "--file", filepath.Dir(file), "--force"},
		{"--from", "-2h", "--sink", "orders", "--address", "127.0.0.1:1"},
		{"--from", "-2h", "--sink", "orders", "--context", "one"},
		{"--from", "-2h", "--sink", "orders", "--token-file", file},
		{"--from", "-2h", "--sink", "orders", "--ca-file", file},
		{"--from", "-2h", "--sink", "orders", "--cert-file", file, "--key-file", file},
		{"--from", "-2h", "--sink", "orders", "--server-name", "node-1"},
		{"--from", "-2h", "--file", filepath.Join(file, "below", "a-file")},
	} {
		if _, err := d.command(append([]string{"replay"}, args...)...); ExitCode(err) != exitUsage {
			t.Errorf("%v: %v", args, err)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written")
	}
}

// A file gets its name also where the file system has no links, and replaces no other that has come
// meanwhile. It is complete where a folder cannot be synced, but not where syncing fails.
func TestFileIsNamedOnEveryFileSystem(t *testing.T) {
	for _, c := range []struct {
		name               string
		link, folder, want error
		taken, force       bool
	}{
		{name: "links"},
		{name: "no links", link: syscall.EPERM},
		{name: "links are unknown", link: syscall.ENOTSUP},
		{name: "links, and taken", taken: true, want: fs.ErrExist},
		{name: "no links, and taken", link: syscall.EPERM, taken: true, want: fs.ErrExist},
		{name: "replaced", link: syscall.EPERM, taken: true, force: true},
		{name: "folders cannot be synced", folder: syscall.EINVAL},
		{name: "folders cannot be synced there", folder: syscall.ENOTSUP},
		{name: "the folder cannot be read", folder: fs.ErrPermission},
		{name: "the folder is not synced", folder: syscall.EIO, want: syscall.EIO},
	} {
		path := filepath.Join(t.TempDir(), "out.ndjson")
		f, err := newWholeFile(path, c.force)
		if err == nil {
			_, err = f.line([]byte("{}"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if c.link != nil {
			f.link = func(from, to string) error { return &os.LinkError{Op: "link", Old: from, New: to, Err: c.link} }
		}
		if c.folder != nil {
			f.syncFolder = func(name string) error { return &fs.PathError{Op: "sync", Path: name, Err: c.folder} }
		}
		want := "{}\n"
		if c.taken {
			write(t, path, []byte("another"))
		}
		if c.taken && !c.force {
			want = "another"
		}
		err = f.publish()
		f.discard()
		refused := errors.Is(c.want, fs.ErrExist) && fault.Of(err) == fault.CommandBadArgument
		if !refused && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		text, err := os.ReadFile(path)
		info, failed := os.Stat(path)
		if err != nil || failed != nil || string(text) != want || want == "{}\n" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %q, %v, %v", c.name, text, info, err)
		}
		if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
			t.Errorf("%s: temporary files are left: %v, %v", c.name, left, err)
		}
	}
}

// Commands that read the stores know the log beyond the oplog: a sink is replayed, and subscribers
// are rewound, listed and checked, from where the retained log begins.
func TestCommandsReachBehindTheOplog(t *testing.T) {
	d := newFixture(t)
	origin, err := d.conn.Store.Origin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "log")
	files := retention.NewFiles(root)
	const hour = 3600
	chain := backend.Chain(files, origin)
	fillFrom(t, files, chain.Folder(), 4, d.first.Time.T-hour, hour/2)
	extent, err := chain.Extent(t.Context())
	if err != nil || extent.From.Compare(d.first.Time) >= 0 || extent.To.Compare(d.last.Time) < 0 {
		t.Fatalf("%+v, %v", extent, err)
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	to := fmt.Sprintf("%d:1", d.first.Time.T-hour/4)
	moves := [][]string{{"subscribers", "rewind", "gateway/orders", "--to", to, "--yes"}, {"replay", "--sink", "stdout", "--from", to, "--yes"}}
	for _, move := range moves {
		if text, err := d.command(move...); fault.Of(err) != fault.CheckpointRewind {
			t.Errorf("%v without the retained log: %s, %v", move, text, err)
		}
	}
	t.Setenv("STREAMER_RETENTION_STORE", "file://"+root)
	if text, err := d.command("replay", "--sink", "stdout", "--from", to); fault.Of(err) != fault.CommandUnconfirmed {
		t.Errorf("%s, %v", text, err)
	}
	for _, move := range moves {
		var done struct {
			Done    bool
			Reached admin.Reach
		}
		if d.result(&done, move...); !done.Done || done.Reached != admin.Reached {
			t.Errorf("%v: %+v", move, done)
		}
	}
	past, err := d.conn.Store.History(t.Context(), checkpoint.Key{Subscriber: "stdout", Shared: true, Partition: 1})
	if err != nil || past[0].Position.Time.T != d.first.Time.T-hour/4 || past[0].Reason != checkpoint.ReasonRewind {
		t.Errorf("%+v, %v", past[0], err)
	}
	for _, store := range []string{"file://" + root, "", "file:///nowhere/log"} {
		t.Setenv("STREAMER_RETENTION_STORE", store)
		retained := store == "file://"+root
		var list admin.SubscriberList
		d.result(&list, "subscribers", "list")
		if list.OplogBegins == nil || list.OplogBegins.Equal(extent.From.Time()) != retained {
			t.Errorf("%s: the log begins at %v", store, list.OplogBegins)
		}
		for _, s := range list.Subscribers {
			if left := s.HeadRoom != nil && *s.HeadRoom < 0; left == retained {
				t.Errorf("%s: %s has %v", store, s.Subscriber, s.HeadRoom)
			}
		}
		text, _ := d.command("check", "-o", "json")
		var report preflight.Report
		if err := json.Unmarshal([]byte(text), &report); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, c := range report.Checks {
			if lost := c.Code == fault.LogHistoryLost; c.Name == "checkpoints" && lost == retained {
				t.Errorf("%s: %+v", store, c)
			}
		}
	}
	var list admin.SubscriberList
	t.Setenv("STREAMER_RETENTION_STORE", "file://"+root)
	t.Setenv("STREAMER_CLUSTER_EXPECTED_NODES", "2") // what one node's folder has, others have not
	d.result(&list, "subscribers", "list")
	if list.OplogBegins == nil || time.Time.Equal(*list.OplogBegins, extent.From.Time()) {
		t.Errorf("of two nodes, the log begins at %v", list.OplogBegins)
	}
}
