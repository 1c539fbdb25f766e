package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/retention"
)

// The retained log is listed, shown, verified and expired in its folder, without a node.
func TestRetainedLogIsOperatedInItsFolder(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	root := filepath.Join(t.TempDir(), "log")
	files := retention.NewFiles(root)
	const chain = "v1/abc/1"
	fill(t, files, chain, 3)
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	run := func(into any, words ...string) error {
		t.Helper()
		text, err := d.command(append(append([]string{"retention"}, words...), "-o", "json", "--store", "file://"+root)...)
		if broken := json.Unmarshal([]byte(text), into); broken != nil {
			t.Fatalf("%v: %s, %v, %v", words, text, broken, err)
		}
		return err
	}
	var list []retainedChain
	if err := run(&list, "list"); err != nil || len(list) != 1 || list[0].Chain != chain || len(list[0].Segments) < 3 || list[0].From == nil || list[0].Segments[0].Writer != "a" {
		t.Fatalf("%+v, %v", list, err)
	}
	var shown shownSegment
	if err := run(&shown, "show", "1"); err != nil || shown.Changes == 0 || len(shown.Lanes) != 1 || shown.Lanes[0].Namespaces[0] != "shop.orders" || shown.Lanes[0].Entries != shown.Changes {
		t.Errorf("%+v, %v", shown, err)
	}
	var verified []verifiedChain
	if err := run(&verified, "verify"); err != nil || len(verified) != 1 || verified[0].Segments < len(list[0].Segments) || verified[0].Events == 0 {
		t.Errorf("%+v, %v", verified, err)
	}
	var after pruned
	if err := run(&after, "prune", "--max-age", "1h", "--max-bytes", "1MiB", "--yes"); err != nil || after.Expired != 0 { // they are younger
		t.Errorf("%+v, %v", after, err)
	}
	changes := verified[0].Events
	var forgotten []forgottenChain
	forget := []string{"forget", "--namespace", "shop.orders", "--before", "now"}
	if err := run(&forgotten, append(forget, "--dry-run")...); err != nil || len(forgotten) != 1 || forgotten[0].Done || forgotten[0].Changes != changes {
		t.Errorf("%+v of %d changes, %v", forgotten, changes, err)
	}
	if err := run(&forgotten, append(forget, "--id", "-1", "--yes")...); err != nil || forgotten[0].Changes != 0 { // something could have come
		t.Errorf("%+v, %v", forgotten, err)
	}
	id := 0 // the first one in the log, which begins where its writer did
	for forgotten[0].Changes = 0; forgotten[0].Changes == 0 && id < 1000; id++ {
		if err := run(&forgotten, append(forget, "--id", strconv.Itoa(id), "--dry-run")...); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(&forgotten, append(forget, "--id", strconv.Itoa(id-1), "--yes")...); err != nil || !forgotten[0].Done || forgotten[0].Changes != 1 {
		t.Errorf("%+v, %v", forgotten, err)
	}
	if err := run(&verified, "verify"); err != nil || verified[0].Events != changes-1 || len(verified[0].Findings) > 0 {
		t.Errorf("%+v, %v", verified, err)
	}
	if err := run(&list, "list"); err != nil || len(list) != 1 || len(list[0].Erased) != 1 || time.Since(list[0].Erased[0]) > time.Hour {
		t.Errorf("%v, %v", list[0].Erased, err)
	}
	if text, err := d.command("retention", "list", "--store", "file://"+root); err != nil || !strings.Contains(text, "erasures recorded: 1, the last one at ") {
		t.Errorf("%s, %v", text, err)
	}
	reading, err := retention.ReadFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	var told []string // for the audit log of the nodes, which have another incarnation since
	actions, err := retention.ChainAt(reading, "v1/abc/2").Actions(t.Context())
	for _, a := range actions {
		told = append(told, a.By+" "+a.Command+" "+strings.Join(a.Arguments, " "))
	}
	by := operatorName()
	if len(told) != 3 || err != nil || told[0] != by+" streamer retention prune --chain="+chain+" --max-age=1h0m0s --max-bytes=1.0 MiB" ||
		!strings.HasPrefix(told[1], by+" streamer retention forget --chain="+chain+" --namespace=shop.orders --before=") || !strings.HasSuffix(told[1], "Z (1 documents) (0 changes)") ||
		!strings.HasPrefix(told[2], by+" streamer retention forget --chain="+chain+" --namespace=shop.orders --before=") || !strings.HasSuffix(told[2], "Z (1 documents) (1 changes)") {
		t.Errorf("%q, %v", told, err)
	}
	records, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(chain), "forgotten", "*"))
	if err != nil || len(records) != 1 {
		t.Fatalf("records of erasures %v, %v", records, err)
	}
	if record, err := os.ReadFile(records[0]); err != nil || !strings.Contains(string(record), operatorName()) || !strings.Contains(string(record), "shop.orders") {
		t.Errorf("%s, %v", record, err)
	}
	for _, wrong := range [][]string{{"--namespace", "shop"}, {"--before", ""}, {"--before", "soon"}, {"--id", "[1]"}} {
		if _, err := d.command(append(append([]string{"retention"}, append(forget, wrong...)...), "--yes", "--store", "file://"+root)...); fault.Of(err) != fault.CommandBadArgument {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	second := filepath.Join(root, filepath.FromSlash(chain), "seg", fmt.Sprintf("%020d", 2))
	b, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/3] ^= 1
	if err := os.WriteFile(second, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(&verified, "verify"); ExitCode(err) != exitRefused || len(verified[0].Findings) == 0 || verified[0].Findings[0].Segment != 2 {
		t.Errorf("a damaged segment: %+v, %v", verified, err)
	}
	long := time.Now().Add(-48 * time.Hour)
	all, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(chain), "seg", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("STREAMER_RETENTION_MAX_AGE", "1s")
	if err := run(&after, "prune", "--max-bytes", "1MiB", "--yes"); err != nil || after.Expired != 0 {
		t.Errorf("a bound that was not given counts: %+v, %v", after, err)
	}
	if err := run(&after, "prune", "--max-age", "1s", "--yes"); err != nil || after.Expired == 0 || after.Floor < 2 {
		t.Errorf("%+v, %v", after, err)
	}
	for line, want := range map[string]string{
		"show 99": "no segment 99", "show x": "no number", "list --chain v1/abc/2": "no \"v1/abc/2\"", "list --store ftp://x": "not the URL of a folder", "list --store s3://x": "must name a bucket",
		"prune --max-age x --yes": "MAX_AGE",
	} {
		words := strings.Fields(line)
		_, err := d.command(append([]string{"retention", words[0], "--store", "file://" + root}, words[1:]...)...)
		if ExitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := d.command("retention", "list", "--store", "file://"+missing); fault.Of(err) != fault.RetentionStore {
		t.Errorf("a folder that is missing: %v", err)
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("looking at a folder made it")
	}
	if text, err := d.command("retention", "list", "--store", "file://"+root); err != nil || !strings.Contains(text, chain) {
		t.Errorf("%s, %v", text, err)
	}
}

// A finishing store ends no write with its context, so that none appears after the writer has
// ended.
type finishing struct{ retention.Store }

func (s finishing) Put(ctx context.Context, key string, data []byte) error {
	return s.Store.Put(context.WithoutCancel(ctx), key, data)
}

// fill writes a chain of at least the given number of segments into a store, as a node does.
func fill(t *testing.T, store retention.Store, folder string, segments int) {
	t.Helper()
	fillFrom(t, store, folder, segments, 1001, 1)
}

// fillFrom is fill with changes from about a second on, and of as many steps: until the log is
// read, a change follows a second after the one before, so that the chain begins there.
func fillFrom(t *testing.T, store retention.Store, folder string, segments int, from, step uint32) {
	t.Helper()
	mongo := &oplogtest.Log{ReplyEvents: 10}
	mongo.Tick(from - 1000)
	log := oplog.New(oplog.Config{Partitions: 1, Reach: func(context.Context) (gap.Reach, error) {
		first, last := mongo.Reach()
		return gap.Reach{First: first, Last: last}, nil
	}}, mongo)
	chain := retention.ChainAt(finishing{store}, folder)
	writer := retention.NewWriter(retention.WriterConfig{Node: "a", Version: "test", Size: 1}, chain, log) // a segment for each time
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- log.Run(ctx, change.Position{}) }()
	go func() { ended <- writer.Run(ctx) }()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	next, enough := uint32(1), uint32(0)
	for id := int64(0); ; id++ {
		all, err := chain.Segments(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) > 0 && enough == 0 {
			_, now := mongo.Reach()
			next, enough = step, now.T+step*uint32(segments-1)
		}
		if len(all) >= segments {
			extent, err := chain.Extent(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if extent.To.T >= enough {
				break
			}
		}
		mongo.Tick(next)
		mongo.Append(changetest.Event{Coll: "orders", ID: id})
		<-look.C
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// Only the bounds that somebody gave count, in the question, too.
func TestGivenBoundIsTheOnlyOne(t *testing.T) {
	lonely(t)
	for _, tt := range []struct{ age, size, question string }{
		{"", "", "Expire what is older than 168h0m0s or beyond 100.0 GiB in x?"},
		{"72h", "", "Expire what is older than 72h0m0s in x?"},
		{"", "200GiB", "Expire what is beyond 200.0 GiB in x?"},
		{"72h", "200GiB", "Expire what is older than 72h0m0s or beyond 200.0 GiB in x?"},
		{"0s", "", "Delete what has expired in x?"},
	} {
		keep, err := new(retained).bounds(tt.age, tt.size)
		if got := pruneQuestion(keep, "x"); err != nil || got != tt.question {
			t.Errorf("--max-age %q --max-bytes %q: %q, %v", tt.age, tt.size, got, err)
		}
	}
}

// A folder without a log, or one that cannot be read, is not a log without a fault.
func TestNothingIsVerifiedWhereNoLogIs(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	root := t.TempDir()
	look := func(command string) (string, error) {
		return d.command("retention", command, "--store", "file://"+root)
	}
	if text, err := look("list"); err != nil || !strings.Contains(text, "no retained log") {
		t.Errorf("%s, %v", text, err)
	}
	if text, err := look("verify"); fault.Of(err) != fault.RetentionStore || ExitCode(err) != exitRefused {
		t.Errorf("%s, %v", text, err)
	}
	v1 := filepath.Join(root, "v1")
	if err := os.Symlink(v1, v1); err != nil { // to itself: nobody can read it
		t.Fatal(err)
	}
	for _, command := range []string{"list", "verify"} {
		if text, err := look(command); fault.Of(err) != fault.RetentionStore || !strings.Contains(err.Error(), "look for chains") {
			t.Errorf("%s: %s, %v", command, text, err)
		}
	}
}

// Whoever is not the user of the node leaves no file that the node cannot use.
func TestExpiryAndErasureAreOfTheOwner(t *testing.T) {
	lonely(t)
	d := &fixture{T: t}
	root := t.TempDir()
	segments := filepath.Join(root, "v1", "a", "1", "seg")
	if err := os.MkdirAll(segments, 0o700); err != nil {
		t.Fatal(err)
	}
	user := os.Geteuid()
	if err := checkOwner(segments, user); err != nil {
		t.Error(err)
	}
	if err := checkOwner(segments, user+1); fault.Of(err) != fault.RetentionStore || !strings.Contains(err.Error(), fmt.Sprintf("sudo -u '#%d'", user)) {
		t.Errorf("%v", err)
	}
	if user != 0 {
		t.Log("not tried with a folder of somebody else, which only root can make")
		return
	}
	if err := os.Chown(segments, 65532, -1); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{"prune"}, {"forget", "--namespace", "shop.orders", "--before", "now"}} { // though nothing is there to erase
		if _, err := d.command(append(append([]string{"retention"}, words...), "--yes", "--store", "file://"+root)...); fault.Of(err) != fault.RetentionStore {
			t.Errorf("%v: %v", words, err)
		}
		for _, folder := range []string{root, filepath.Dir(segments)} {
			if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
				t.Errorf("%v: %v, %v", words, left, err)
			}
		}
	}
}
