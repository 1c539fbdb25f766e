package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
)

// operate starts a command on the lab's marks.
func (l *lab) operate(args ...string) *process {
	l.t.Helper()
	return start(l.t, launch{args: args, env: l.settings})
}

// result runs a command that must succeed, and returns what it writes.
func (l *lab) result(args ...string) string {
	l.t.Helper()
	p := l.operate(args...)
	if code := p.wait(); code != 0 {
		l.t.Fatalf("streamer %v: exit code %d: %q", args, code, p.notes.all())
	}
	return strings.Join(p.output.all(), "\n")
}

// A position is what commands show of one.
type position struct {
	Time time.Time
	T, I uint32
	Hash string
}

func (p position) target() string { return fmt.Sprintf("%d:%d", p.T, p.I) }

func (p position) of(q change.Position) bool { return p.T == q.Time.T && p.I == q.Time.I }

// A shown is what commands show of a checkpoint.
type shown struct {
	Partition  *change.Partition
	Position   position
	Generation uint64
	Epoch      string
	By         string
	Reason     checkpoint.Reason
	Note       string
}

// A listing is what commands show of all subscribers.
type listing struct {
	Origin struct {
		Cluster, Source         string
		Incarnation, Partitions int
		Start                   position
	}
	Subscribers []struct {
		Subscriber, Kind string
		Without          int `json:"without_checkpoint"`
	}
}

func (l *lab) list() listing {
	l.t.Helper()
	return decode[listing](l.t, l.result("subscribers", "list", "-o", "json"))
}

// show returns what commands show of the checkpoints of standard output.
func (l *lab) show() []shown {
	l.t.Helper()
	p := l.operate("subscribers", "show", printer, "-o", "json")
	if p.wait() != 0 && p.noted("has no checkpoint") {
		return nil
	}
	return decode[struct{ Checkpoints []shown }](l.t, strings.Join(p.output.all(), "\n")).Checkpoints
}

func TestCheckpointsAreShownWithoutTheirTokens(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, backend)
			use(l)
			stored := l.stored()
			asJSON := l.result("subscribers", "list", "-o", "json")
			all := decode[listing](t, asJSON)
			if len(all.Subscribers) != 1 || all.Subscribers[0].Subscriber != printer || all.Subscribers[0].Kind != "shared" || all.Subscribers[0].Without != 0 ||
				all.Origin.Partitions != partitions || all.Origin.Incarnation != 1 || all.Origin.Start.T == 0 {
				t.Fatalf("%s", asJSON)
			}
			shownAsJSON := l.result("subscribers", "show", printer, "-o", "json")
			human := l.result("subscribers", "list")
			one := l.result("subscribers", "show", printer, "--partition", "3")
			past := decode[struct{ Checkpoints []shown }](t, l.result("subscribers", "history", printer, "--partition", "3", "-o", "json")).Checkpoints
			every := decode[struct{ Checkpoints []shown }](t, shownAsJSON).Checkpoints
			if len(every) != partitions {
				t.Fatalf("%s", shownAsJSON)
			}
			for i, m := range every {
				want := stored[change.Partition(i)]
				if *m.Partition != want.Partition || !m.Position.of(want.Position) || m.By != "node" || m.Reason != want.Reason || m.Epoch != want.Epoch.String() {
					t.Errorf("%+v of %+v", m, want)
				}
				if want.Position.IsProgress() {
					continue
				}
				token := bson.Raw(want.Position.Token).Lookup("_data").StringValue()
				if text := asJSON + shownAsJSON + human + one; strings.Contains(strings.ToUpper(text), token[20:40]) || m.Position.Hash == "" {
					t.Errorf("the token of partition %d is shown, or its position not", i)
				}
			}
			if lines := strings.Split(human, "\n"); len(lines) != 7 || !strings.HasPrefix(lines[1], "connections are unknown") || !strings.Contains(lines[3], "CONNECTED") ||
				!strings.HasPrefix(lines[4], printer+" ") {
				t.Errorf("%s", human)
			}
			if !strings.Contains(one, stored[3].Position.Time.String()) || !strings.Contains(one, "node") {
				t.Errorf("%s", one)
			}
			if len(past) == 0 || !past[0].Position.of(stored[3].Position) || past[0].Reason != checkpoint.ReasonFinal {
				t.Errorf("%+v", past)
			}
			if text := l.result("gaps"); !strings.HasPrefix(text, "No losses of the log.") {
				t.Errorf("%s", text)
			}
			if log := decode[struct{ Gaps []any }](t, l.result("gaps", "-o", "json")); log.Gaps == nil || len(log.Gaps) != 0 {
				t.Errorf("%+v", log)
			}
		})
	}
}

// A rewind ends the term of its partition alone; the node that runs claims it again, tells, and
// delivers again.
func TestRewindOfARunningNodeDeliversAgain(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, backend).with("STREAMER_RELIABILITY_CHECKPOINT_INTERVAL=100ms")
			lines := newJournal()
			p := l.printer(func(line string) { lines.add(line, false) })
			p.await(nodeRuns)
			begin := l.list().Origin.Start
			start := begin.target()
			l.insert(0, 200)
			until(t, "all is printed, and partition 3 has moved", func() bool {
				at, there := l.stored()[3]
				return there && at.Position.After(change.At(change.Timestamp{T: begin.T, I: begin.I})) && len(lines.all()) == 200
			})
			before := l.stored()[3]
			plan := decode[rewindResult](t, l.result("subscribers", "rewind", printer, "--partition", "3", "--to", start, "--dry-run", "-o", "json"))
			if after := l.stored()[3]; before.Position.After(after.Position) || after.Generation != 0 { // the node may have moved it on
				t.Errorf("%+v became %+v", before, after)
			}
			if plan.Done || plan.Reached != "yes" || len(plan.Checkpoints) != 1 || !plan.Checkpoints[0].Moves || plan.Entries == nil || *plan.Entries < 1 {
				t.Errorf("%+v", plan)
			}
			human := l.result("subscribers", "rewind", printer, "--partition", "3", "--to", start, "--dry-run")
			for _, want := range []string{"reaches back so far: yes", "to generation 1", "REDELIVERED AT MOST"} {
				if !strings.Contains(human, want) {
					t.Errorf("the plan does not say %q: %s", want, human)
				}
			}
			done := decode[rewindResult](t, l.result("subscribers", "rewind", printer, "--partition", "3", "--to", start, "--why", "a test", "--yes", "-o", "json"))
			if !done.Done {
				t.Errorf("%+v", done)
			}
			again := func() (notices, events int) {
				for _, line := range lines.all()[200:] {
					said := decode[struct {
						Notice    string
						Partition *change.Partition
					}](t, line)
					switch {
					case said.Notice == "rewound":
						notices++
					case said.Partition == nil || *said.Partition != 3:
						t.Fatalf("another partition: %s", line)
					default:
						events++
					}
				}
				return notices, events
			}
			want := 0
			for _, line := range lines.all()[:200] {
				if p := decode[struct{ Partition change.Partition }](t, line).Partition; p == 3 {
					want++
				}
			}
			until(t, "partition 3 comes again", func() bool { _, events := again(); return events >= want })
			if notices, events := again(); notices != 1 || events != want {
				t.Errorf("%d notices, %d events again; want one and %d", notices, events, want)
			}
			for _, m := range l.show() {
				if want := map[bool]uint64{true: 1}[*m.Partition == 3]; m.Generation != want {
					t.Errorf("partition %d has generation %d", *m.Partition, m.Generation)
				}
			}
			if past := l.result("subscribers", "history", printer, "--partition", "3"); !strings.Contains(past, `rewind: "a test"`) {
				t.Errorf("%s", past)
			}
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// rewoundPartitions returns the partitions of which lines tell that an operator has moved them.
func rewoundPartitions(t *testing.T, lines []string) (all []change.Partition) {
	t.Helper()
	for _, line := range lines {
		if strings.Contains(line, `"notice":"rewound"`) {
			all = append(all, decode[struct{ Partitions []change.Partition }](t, line).Partitions...)
		}
	}
	slices.Sort(all)
	return all
}

type rewindResult struct {
	Done        bool
	Reached     string
	Entries     *int64 `json:"log_entries"`
	Checkpoints []struct {
		Partition change.Partition
		Moves     bool
		Events    *int64
	}
}

// What cannot be done is refused with one message, and changes nothing.
func TestBadInputOfOperatorsChangesNothing(t *testing.T) {
	t.Parallel()
	closed := devmongotest.FreeAddress()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, backend)
			use(l)
			at := l.stored()[3].Position.Time
			// Tokens of that time: of an event whose collection has no name, and of a stream that
			// has got as far as that.
			event := fmt.Sprintf("82%08X%08X2B022C0100296E5A1004%032X463C5F6964003C61000004", at.T, at.I, 1)
			progress := fmt.Sprintf("82%08X%08X2B0229296E04", at.T, at.I)
			archive := filepath.Join(t.TempDir(), "checkpoints.json")
			l.result("subscribers", "export", archive)
			damaged := filepath.Join(t.TempDir(), "damaged.json")
			whole, err := os.ReadFile(archive)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(damaged, whole[:len(whole)/2], 0o600); err != nil {
				t.Fatal(err)
			}
			now := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
			rewind := func(args ...string) []string { return append([]string{"subscribers", "rewind", printer}, args...) }
			unreachable := []string{"STREAMER_ETCD_ENDPOINTS=" + closed, "STREAMER_ETCD_DIAL_TIMEOUT=300ms"}
			unreachableCode := fault.EtcdUnreachable
			mongoAway := []string{"STREAMER_MONGODB_URI=mongodb://" + closed + "/?replicaSet=rs0", "STREAMER_MONGODB_SERVER_SELECTION_TIMEOUT=300ms"}
			if backend == "mongo" {
				unreachable, unreachableCode = mongoAway, fault.MongoUnreachable
			}
			for _, tt := range []struct {
				name     string
				args     []string
				settings []string
				prepare  func()
				code     fault.Code
				says     string
			}{
				{"unknown partition", []string{"subscribers", "show", printer, "--partition", "16"}, nil, nil, fault.CommandBadArgument, `no partition "16": they are numbered from 0 to 15`},
				{"no number", []string{"subscribers", "history", printer, "--partition", "three"}, nil, nil, fault.CommandBadArgument, `"three"`},
				{"negative", rewind("--partition", "-1", "--to", now), nil, nil, fault.CommandBadArgument, `"-1"`},
				{"nobody", []string{"subscribers", "rewind", "--to", now}, nil, nil, fault.CommandBadArgument, "accepts 1 arg"},
				{"unknown subscriber", []string{"subscribers", "rewind", "nobody", "--to", now}, nil, nil, fault.CommandBadArgument, `"nobody"`},
				{"no target", rewind("--partition", "3"), nil, nil, fault.CommandBadArgument, "--to"},
				{"malformed time", rewind("--partition", "3", "--to", "yesterday"), nil, nil, fault.CommandBadArgument, `"yesterday"`},
				{"time without its zone", rewind("--partition", "3", "--to", "2026-01-31T12:00:00"), nil, nil, fault.CommandBadArgument, "2026-01-31 12:00:00 UTC"},
				{"malformed token", rewind("--partition", "3", "--to", "82ZZ"), nil, nil, fault.CommandBadArgument, `"82ZZ"`},
				{"token that is cut off", rewind("--partition", "3", "--to", "8265A1B2C3000000012B"), nil, nil, fault.CommandBadArgument, "resume token"},
				{"to the future", rewind("--partition", "3", "--to", now), nil, nil, fault.CheckpointRewind, "is not after"},
				{"all to the future", rewind("--to", now), nil, nil, fault.CheckpointRewind, "is nowhere after"},
				{"to before the oplog", rewind("--partition", "3", "--to", "1970-01-01T00:01:00Z"), nil, nil, fault.CheckpointRewind, "the oplog begins at"},
				{"MongoDB away", rewind("--partition", "3", "--to", "1970-01-01T00:01:00Z"), mongoAway, nil, fault.MongoUnreachable, closed},
				{"unknown flag", []string{"subscribers", "list", "--all"}, nil, nil, fault.CommandBadArgument, "--all"},
				{"unknown output", []string{"subscribers", "list", "-o", "xml"}, nil, nil, fault.CommandBadArgument, `"xml"`},
				{"unknown command", []string{"subscribers", "forward"}, nil, nil, fault.CommandBadArgument, `"forward"`},
				{"too many arguments", []string{"gaps", "3"}, nil, nil, fault.CommandBadArgument, "gaps"},
				{"no cluster there", []string{"subscribers", "list"}, []string{"STREAMER_CLUSTER_ID=elsewhere"}, nil, fault.ClusterUnknown, "no origin"},
				{"no cluster to rewind", rewind("--partition", "3", "--to", now), []string{"STREAMER_CLUSTER_ID=elsewhere"}, nil, fault.ClusterUnknown, "no origin"},
				{"no cluster to adopt", []string{"cluster", "adopt", "--yes"}, []string{"STREAMER_CLUSTER_ID=elsewhere"}, nil, fault.ClusterUnknown, "no origin"},
				{"no cluster for gaps", []string{"gaps"}, []string{"STREAMER_CLUSTER_ID=elsewhere"}, nil, fault.ClusterUnknown, "no origin"},
				{"no cluster to export", []string{"subscribers", "export"}, []string{"STREAMER_CLUSTER_ID=elsewhere"}, nil, fault.ClusterUnknown, "no origin"},
				{"another number of partitions", []string{"subscribers", "list"}, []string{"STREAMER_CLUSTER_PARTITIONS=8"}, nil, fault.CheckpointPartitions, "16 partitions, not for 8"},
				{"unreachable store", []string{"subscribers", "list"}, unreachable, nil, unreachableCode, closed},
				{"unreachable store of gaps", []string{"gaps", "-o", "json"}, unreachable, nil, unreachableCode, closed},
				{"corrupt checkpoint in a list", []string{"subscribers", "list"}, nil, func() { l.store.setCheckpoint(3, `{"v":1,`) }, fault.CheckpointCorrupt, "3: unexpected end"},
				{"corrupt checkpoint", []string{"subscribers", "show", printer, "--partition", "3"}, nil, func() { l.store.setCheckpoint(3, `{"v":1,`) }, fault.CheckpointCorrupt, "3: unexpected end"},
				{"newer checkpoint to rewind", rewind("--partition", "3", "--to", "1970-01-01T00:01:00Z"), nil, func() { edit(l, 3, "v", 9) }, fault.CheckpointNewer, "3 has version 9"},
				{"corrupt checkpoint to export", []string{"subscribers", "export"}, nil, func() { l.store.setCheckpoint(3, "{}") }, fault.CheckpointCorrupt, "3: it has no version"},
				{"corrupt checkpoint to adopt", []string{"cluster", "adopt", "--yes"}, nil, func() { l.store.setCheckpoint(3, "{}") }, fault.CheckpointCorrupt, "3: it has no version"},
				{"corrupt origin", []string{"subscribers", "show", printer, "--partition", "3"}, nil, func() { l.store.setOrigin("{}") }, fault.CheckpointCorrupt, "origin"},
				{"checkpoints of another deployment", []string{"cluster", "adopt", "--yes"}, nil, func() { moveOrigin(l) }, fault.CheckpointSource, "--source"},
				{"archive of another deployment", []string{"subscribers", "import", archive, "--yes"}, nil, func() { moveOrigin(l) }, fault.CheckpointSource, "the checkpoints here are of"},
				{"nobody to ask", []string{"cluster", "adopt"}, nil, nil, fault.CommandUnconfirmed, "terminal"},
				{"nobody to ask about an import", []string{"subscribers", "import", archive}, nil, nil, fault.CommandUnconfirmed, "terminal"},
				{"adopt to a token", []string{"cluster", "adopt", "--yes", "--to", event}, nil, nil, fault.CommandBadArgument, "not a token"},
				{"adopt to a token of progress", []string{"cluster", "adopt", "--yes", "--to", progress}, nil, nil, fault.CommandBadArgument, "not a token"},
				{"adopt to the future", []string{"cluster", "adopt", "--yes", "--to", now}, nil, nil, fault.CheckpointRewind, "ahead of MongoDB"},
				{"no archive", []string{"subscribers", "import", "missing.json", "--yes"}, nil, nil, fault.CommandBadArgument, "missing.json"},
				{"half an archive", []string{"subscribers", "import", damaged, "--yes"}, nil, nil, fault.CheckpointCorrupt, damaged},
				{"archive that exists", []string{"subscribers", "export", archive}, nil, nil, fault.CommandBadArgument, archive},
			} {
				t.Run(tt.name, func(t *testing.T) {
					l.t = t
					defer func(before map[string]string) { l.store.restore(before) }(l.store.everything())
					if tt.prepare != nil {
						tt.prepare()
					}
					before := l.store.everything()
					l.with(tt.settings...).operate(tt.args...).refused(tt.code, tt.says)
					unchanged(t, before, l.store.everything())
				})
			}
			l.t = t
		})
	}
}

// A mark that cannot be read is told, and keeps nobody from the others.
func TestCorruptCheckpointIsInNobodysWay(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd")
	use(l)
	l.store.setCheckpoint(5, "{}")
	p := l.operate("subscribers", "list", "-o", "json")
	p.refused(fault.CheckpointCorrupt, "00005")
	if all := decode[listing](t, strings.Join(p.output.all(), "\n")); len(all.Subscribers) != 1 || all.Subscribers[0].Without != 1 {
		t.Errorf("%+v", all)
	}
	to := decode[listing](t, strings.Join(p.output.all(), "\n")).Origin.Start.target()
	if !decode[rewindResult](t, l.result("subscribers", "rewind", printer, "--partition", "3,4", "--to", to, "--yes", "-o", "json")).Done {
		t.Error("not rewound")
	}
	// A node serves the others of the sink, and this one as soon as a rewind has repaired it.
	node := start(t, launch{args: []string{"run", "-o", "json"}, env: l.settings})
	node.await(nodeRuns)
	came := func() (mine, others int) {
		for _, line := range node.output.all() {
			if e := decode[struct{ Partition *change.Partition }](t, line); e.Partition != nil && *e.Partition == 5 {
				mine++
			} else if e.Partition != nil {
				others++
			}
		}
		return mine, others
	}
	until(t, "the rewound partitions come again", func() bool { _, others := came(); return others > 1 })
	if mine, _ := came(); mine > 0 {
		t.Errorf("%d changes of the partition whose checkpoint cannot be read", mine)
	}
	if !decode[rewindResult](t, l.result("subscribers", "rewind", printer, "--partition", "5", "--to", to, "--yes", "-o", "json")).Done {
		t.Error("not repaired")
	}
	until(t, "the repaired partition comes again", func() bool { mine, _ := came(); return mine > 1 })
	if at := l.stored()[5]; at.Generation != 1 {
		t.Errorf("it was repaired to %+v", at)
	}
}

// Marks are carried from etcd to MongoDB: the node there goes on where the one before stopped.
func TestCheckpointsMoveToAnotherStore(t *testing.T) {
	t.Parallel()
	l := newLab(t, "etcd")
	use(l)
	file := filepath.Join(t.TempDir(), "checkpoints.json")
	l.result("subscribers", "export", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	there := labOn(t, "mongo", l.uri)
	there.database = l.database
	there = there.with(slices.DeleteFunc(slices.Clone(l.settings), func(s string) bool { return !strings.HasPrefix(s, "STREAMER_MONGODB_WATCH=") })...)

	looked := there.store.everything()
	if text := there.result("subscribers", "import", file, "--dry-run"); !strings.Contains(text, "no cluster here yet") {
		t.Errorf("%s", text)
	}
	unchanged(t, looked, there.store.everything())
	if text := there.result("subscribers", "import", file, "--yes"); !strings.Contains(text, "16 checkpoints are new") {
		t.Errorf("%s", text)
	}
	before, after := l.stored(), there.stored()
	for p, m := range before {
		if after[p].Position.Compare(m.Position) != 0 || after[p].Reason != checkpoint.ReasonImport || after[p].Fingerprint != m.Fingerprint {
			t.Errorf("%+v was imported as %+v", m, after[p])
		}
	}
	l.insert(1000, 1010)
	node := start(t, launch{args: []string{"run", "-o", "json"}, env: there.settings})
	until(t, "all that came since is printed", func() bool {
		return len(slices.DeleteFunc(node.output.all(), func(line string) bool { return !strings.Contains(line, `"operationType":"insert"`) })) >= 10
	})
	lines := node.output.all()
	told := rewoundPartitions(t, lines)
	if got := described(sightings(t, lines)); len(told) != partitions || strings.Count(got, "insert") != 10 || strings.Count(got, "insert 100") != 10 {
		t.Errorf("partitions %v are told that they were moved: %s", told, got)
	}

	running := there.operate("subscribers", "import", file, "--yes") // which waits for as long as a claim can live
	running.refused(fault.NodeRunning, `held by node "node"`)
	node.signal(syscall.SIGTERM)
	if code := node.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	stands := there.stored()
	if text := there.result("subscribers", "import", file, "--yes"); !strings.Contains(text, "back") {
		t.Errorf("%s", text)
	}
	for p, m := range there.stored() {
		moved := stands[p].Position.After(before[p].Position)
		if m.Position.Compare(before[p].Position) != 0 || moved != (m.Generation == 1) {
			t.Errorf("partition %d stood at %s and is at %s, generation %d", p, stands[p].Position, m.Position, m.Generation)
		}
	}
}
