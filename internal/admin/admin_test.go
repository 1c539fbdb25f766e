package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/notice"
)

func TestTargets(t *testing.T) {
	token := checkpointtest.Event(7)
	document, data := tokenText(t, token)
	for text, want := range map[string]change.Position{
		"2026-01-31T12:00:00Z":      change.At(change.Timestamp{T: 1769860800, I: 1}),
		"2026-01-31T13:00:00+01:00": change.At(change.Timestamp{T: 1769860800, I: 1}),
		"1769860800:7":              change.At(change.Timestamp{T: 1769860800, I: 7}),
		data:                        token,
		strings.ToLower(data):       token,
		document:                    token,
	} {
		got, err := admin.ParseTarget(text)
		if err != nil || got.Compare(want) != 0 || got.IsProgress() != want.IsProgress() {
			t.Errorf("%.30q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "now", "yesterday", "12:00", "2026-01-31", "2026-01-31T12:00:00", "1969-01-01T00:00:00Z", "2200-01-01T00:00:00Z", "1769860800", "0:1", "-1:1",
		"4294967296:1", "1:4294967296", ":", "1:", "{}", `{"_data":7}`, `{"_data":"8204"}`, "8204", "04", "zz", data[:38], data[:len(data)-1], "91" + data[2:],
	} {
		if got, err := admin.ParseTarget(text); fault.Of(err) != fault.CommandBadArgument || !errors.Is(err, admin.ErrTarget) {
			t.Errorf("%.30q: %s, %v", text, got, err)
		}
	}
	if _, err := admin.ParseTarget(data[:60]); err == nil || strings.Contains(err.Error(), data[30:60]) {
		t.Errorf("a token that is cut off is shown: %v", err)
	}
}

// tokenText returns a token as JSON, and its _data.
func tokenText(t *testing.T, p change.Position) (document, data string) {
	t.Helper()
	i := bytes.Index(p.Token, []byte("82"))
	if i < 0 {
		t.Fatalf("token %q", p.Token)
	}
	data = string(bytes.TrimRight(p.Token[i:], "\x00"))
	text, err := json.Marshal(map[string]string{"_data": data})
	if err != nil {
		t.Fatal(err)
	}
	return string(text), data
}

// A source is a deployment as a test wants it.
type source struct {
	identity   string
	now, first change.Timestamp
	retained   change.Timestamp // where what can be read begins, if earlier
	entries    int64
	asked      bool // for the number of entries
	unreadable bool
	growing    bool
	away       error
}

func (s *source) Identity(context.Context) (string, error)      { return s.identity, nil }
func (s *source) Now(context.Context) (change.Timestamp, error) { return s.now, s.away }

func (s *source) FirstEntry(context.Context) (change.Timestamp, bool, error) {
	return s.first, !s.unreadable, nil
}

func (s *source) Extend(oplog gap.Reach) gap.Reach {
	oplog.Retained = s.retained
	return oplog
}

func (s *source) Growing(context.Context) bool { return s.growing }

func (s *source) CountEntries(context.Context, change.Timestamp, change.Timestamp) (int64, bool, error) {
	s.asked = true
	return s.entries, !s.unreadable, nil
}

const partitions = 4

func same(p, q change.Position) bool { return p.Compare(q) == 0 }

func at(seconds uint32) change.Position { return change.At(change.Timestamp{T: 1000 + seconds, I: 1}) }

// sink is the shared subscriber of a world.
func sink(p change.Partition) checkpoint.Key {
	return checkpoint.Key{Subscriber: "sink", Shared: true, Partition: p}
}

// world is a store with a shared subscriber, which is at 100 + 10·p in partition p and has no
// checkpoint in the last one.
func world(t *testing.T) (*checkpointtest.Memory, *source) {
	t.Helper()
	s := checkpointtest.NewMemory(partitions)
	o := checkpoint.Origin{Cluster: "c", Incarnation: 1, Partitions: partitions, Source: "replicaset/rs0/1", Start: at(10).Time, At: time.Now(), By: "n"}
	if _, err := s.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for p := range change.Partition(partitions - 1) {
		share(t, s, p, checkpoint.Checkpoint{Position: at(100 + 10*uint32(p))})
	}
	return s, &source{identity: o.Source, now: at(1000).Time, first: at(5).Time, entries: 1000}
}

// share saves a checkpoint of the shared subscriber.
func share(t *testing.T, s *checkpointtest.Memory, p change.Partition, c checkpoint.Checkpoint) {
	t.Helper()
	term := change.Term{Partition: p, Epoch: change.Epoch{Incarnation: 1, Revision: 1}, Context: t.Context()}
	if _, err := s.ClaimTerms(t.Context(), "sink", []change.Term{term}); err != nil {
		t.Fatal(err)
	}
	c.Key, c.Partitions, c.Epoch, c.At, c.By, c.Reason = sink(p), partitions, term.Epoch, saved(), "n", checkpoint.ReasonFinal
	if err := s.Save(t.Context(), []checkpoint.Checkpoint{c})[0]; err != nil {
		t.Fatal(err)
	}
}

// connect makes a checkpoint of an exclusive subscriber, which is at the position but for some
// partitions.
func connect(t *testing.T, s *checkpointtest.Memory, name string, position change.Position, elsewhere map[change.Partition]change.Position) {
	t.Helper()
	first := checkpoint.Checkpoint{
		Key: checkpoint.Key{Subscriber: name}, Position: position, Positions: elsewhere, Partitions: partitions, At: saved(), By: "a", Reason: checkpoint.ReasonBegin,
	}
	if _, err := s.ClaimName(t.Context(), checkpoint.Claim{Process: "p/" + name, Started: saved(), Node: "a", By: "ann"}, first); err != nil {
		t.Fatal(err)
	}
}

// saved is when checkpoints were saved.
func saved() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) }

// all returns the checkpoints of a store by their keys.
func all(t *testing.T, s checkpoint.Store) map[checkpoint.Key]checkpoint.Checkpoint {
	t.Helper()
	stored, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	by := make(map[checkpoint.Key]checkpoint.Checkpoint)
	for _, c := range stored {
		by[c.Key] = c
	}
	return by
}

func TestRewindIsPlannedFromTheLogsReach(t *testing.T) {
	s, mongo := world(t)
	plan, err := admin.PlanRewind(t.Context(), s, mongo, "sink", nil, at(20))
	if err != nil || plan.Check() != nil {
		t.Fatal(err, plan.Check())
	}
	if plan.Reached != admin.Reached || plan.Moves() != 3 || len(plan.Steps) != 3 || *plan.Steps[1].Partition != 1 || *plan.Entries != 1000 {
		t.Errorf("%+v", plan)
	}
	// Partition 2 goes back over all 100 s, partition 0 over 80 of them: each has its share of the
	// entries.
	if *plan.Steps[2].Events != 250 || *plan.Steps[0].Events != 200 {
		t.Errorf("%d, %d events", *plan.Steps[2].Events, *plan.Steps[0].Events)
	}
	if plan, err := admin.PlanRewind(t.Context(), s, mongo, "sink", nil, at(105)); err != nil || plan.Moves() != 2 || plan.Steps[0].Moves || plan.Steps[0].Events != nil {
		t.Errorf("%+v, %v", plan, err)
	}
	before := all(t, s)
	mongo.first, mongo.asked = at(21).Time, false
	plan, err = admin.PlanRewind(t.Context(), s, mongo, "sink", nil, at(20))
	if err != nil || fault.Of(plan.Check()) != fault.CheckpointRewind || plan.Reached != admin.NotReached || mongo.asked {
		t.Errorf("%+v, %v", plan, err)
	}
	if _, err := plan.Apply(t.Context(), s, "me", ""); fault.Of(err) != fault.CheckpointRewind {
		t.Errorf("a plan that is refused was done: %v", err)
	}
	mongo.unreadable = true
	plan, err = admin.PlanRewind(t.Context(), s, mongo, "sink", []change.Partition{1}, at(20))
	if err != nil || plan.Check() != nil || plan.Reached != admin.Unknown || plan.Entries != nil || plan.OplogBegins != nil {
		t.Errorf("%+v, %v", plan, err)
	}
	after := all(t, s)
	if len(after) != len(before) || after[sink(1)].Generation != 0 {
		t.Errorf("%v", after)
	}
	done, err := plan.Apply(t.Context(), s, "me", "because")
	if err != nil || len(done) != 1 || done[0].Generation != 1 || done[0].Position.Compare(at(20)) != 0 || done[0].Note != "because" || done[0].By != "me" {
		t.Fatalf("%+v, %v", done, err)
	}
	told := plan.Notice(done, "me")
	if err := notice.Check(told); err != nil || told.Fields["subscriber"] != "sink" || told.Fields["generation"] != uint64(1) {
		t.Errorf("%+v, %v", told, err)
	}
}

// A partition that has lost its checkpoint begins at the last entry of its history: a rewind of all
// partitions to before that would leave it out, and is refused.
func TestRewindLeavesOutNoPartitionThatHasLostItsCheckpoint(t *testing.T) {
	s, mongo := world(t)
	s.Lose(sink(1), false)
	for target, code := range map[uint32]fault.Code{20: fault.CheckpointRewind, 115: ""} { // it was at 110
		plan, err := admin.PlanRewind(t.Context(), s, mongo, "sink", nil, at(target))
		if err == nil {
			err = plan.Check()
		}
		if fault.Of(err) != code {
			t.Errorf("to %d: %v", target, err)
		}
	}
	if plan, err := admin.PlanRewind(t.Context(), s, mongo, "sink", []change.Partition{2}, at(20)); err != nil || plan.Check() != nil {
		t.Errorf("of another partition: %v", err)
	}
}

// An exclusive subscriber has one checkpoint: what is after the target in some partition moves, and
// the rest stays.
func TestRewindOfAnExclusiveSubscriber(t *testing.T) {
	s, mongo := world(t)
	key := checkpoint.Key{Subscriber: "gateway"}
	connect(t, s, "gateway", at(60), map[change.Partition]change.Position{1: at(100), 2: at(15)})
	plan, err := admin.PlanRewind(t.Context(), s, mongo, "gateway", nil, at(20))
	if err != nil || plan.Moves() != 1 || plan.Steps[0].From.T != at(100).Time.T || plan.Steps[0].Partition != nil || plan.Steps[0].Claim.Process != "p/gateway" {
		t.Fatalf("%+v, %v", plan, err)
	}
	if *plan.Steps[0].Events != 500 { // of 1000 entries over 80 s: two partitions over 40 s, one over 80, one over none
		t.Errorf("%d events", *plan.Steps[0].Events)
	}
	done, err := plan.Apply(t.Context(), s, "me", "")
	if err != nil || len(done) != 1 || !same(done[0].In(0), at(20)) || !same(done[0].In(1), at(20)) || !same(done[0].In(2), at(15)) || all(t, s)[key].Generation != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if plan, err := admin.PlanRewind(t.Context(), s, mongo, "gateway", nil, at(20)); err != nil || fault.Of(plan.Check()) != fault.CheckpointRewind {
		t.Errorf("back to where it is: %+v, %v", plan, err)
	}
	for name, partitions := range map[string][]change.Partition{"gateway": {1}, "nobody": nil, "sink": {3}} {
		if _, err := admin.PlanRewind(t.Context(), s, mongo, name, partitions, at(20)); fault.Of(err) != fault.CommandBadArgument {
			t.Errorf("%s, %v: %v", name, partitions, err)
		}
	}
}

// A damaged store has a checkpoint that cannot be read.
type damaged struct {
	admin.Store

	key checkpoint.Key
}

func (d damaged) without(all []checkpoint.Checkpoint, err error) ([]checkpoint.Checkpoint, error) {
	left := slices.DeleteFunc(all, func(c checkpoint.Checkpoint) bool { return c.Key == d.key })
	return left, errors.Join(err, fault.Newf(fault.CheckpointCorrupt, "%s", d.key))
}

func (d damaged) Load(ctx context.Context, subscriber string) ([]checkpoint.Checkpoint, error) {
	return d.without(d.Store.Load(ctx, subscriber))
}

func (d damaged) List(ctx context.Context) ([]checkpoint.Checkpoint, error) {
	return d.without(d.Store.List(ctx))
}

// A forgetful store has no history.
type forgetful struct{ admin.Store }

func (forgetful) History(context.Context, checkpoint.Key) ([]checkpoint.Checkpoint, error) {
	return nil, nil
}

func TestCheckpointThatCannotBeReadIsInTheWayOfNoOther(t *testing.T) {
	s, mongo := world(t)
	store := damaged{s, sink(1)}
	if plan, err := admin.PlanRewind(t.Context(), store, mongo, "sink", []change.Partition{0, 2}, at(20)); err != nil || plan.Moves() != 2 {
		t.Errorf("%+v, %v", plan, err)
	}
	for moves, partitions := range map[int][]change.Partition{1: {1}, len(all(t, s)): nil} {
		plan, err := admin.PlanRewind(t.Context(), store, mongo, "sink", partitions, at(20))
		if err != nil || plan.Moves() != moves || !plan.Steps[0].Repairs || *plan.Steps[0].Partition != 1 {
			t.Errorf("%v: %+v, %v", partitions, plan, err)
		}
	}
	if _, err := admin.PlanRewind(t.Context(), damaged{forgetful{s}, sink(1)}, mongo, "sink", []change.Partition{1}, at(20)); fault.Of(err) != fault.CheckpointCorrupt {
		t.Errorf("without a history: %v", err)
	}
	if _, err := admin.Export(t.Context(), store, "me"); fault.Of(err) != fault.CheckpointCorrupt {
		t.Errorf("half an archive: %v", err)
	}
	list, err := admin.Subscribers(t.Context(), store)
	if fault.Of(err) != fault.CheckpointCorrupt || len(list.Subscribers) != 1 || list.Subscribers[0].Without != 2 || list.Error == "" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestAdoptMovesBackWhatIsOfALogThatIsNoMore(t *testing.T) {
	for name, tt := range map[string]struct {
		now   change.Position
		to    change.Timestamp
		ahead int
		goal  change.Position
	}{
		"nothing is ahead":              {at(1000), change.Timestamp{}, 0, at(5)},
		"three are ahead":               {at(105), change.Timestamp{}, 3, at(5)},
		"MongoDB has gone on since":     {at(1000), at(105).Time, 3, at(105)},
		"ahead, and the time is known":  {at(115), at(99).Time, 4, at(99)},
		"the same second is not ahead":  {at(120), change.Timestamp{}, 1, at(5)},
		"given time between two events": {at(1000), change.Timestamp{T: at(110).Time.T, I: 0}, 3, change.At(change.Timestamp{T: at(110).Time.T})},
	} {
		s, mongo := world(t)
		connect(t, s, "gateway", at(50), map[change.Partition]change.Position{2: at(130)})
		connect(t, s, "slow", at(50), nil)
		mongo.now = tt.now.Time
		if tt.ahead == 0 {
			mongo.now = at(1000).Time
		}
		before := all(t, s)
		plan, err := admin.PlanAdopt(t.Context(), s, mongo, tt.to, checkpoint.Backend{})
		if err != nil || len(plan.Ahead) != tt.ahead || plan.Check(false) != nil {
			t.Fatalf("%s: %+v, %v", name, plan, err)
		}
		origin, err := plan.Apply(t.Context(), s, "me")
		if err != nil || origin.Incarnation != 2 {
			t.Fatalf("%s: %+v, %v", name, origin, err)
		}
		gaps, err := s.Gaps(t.Context())
		if err != nil || len(gaps) != min(1, tt.ahead) {
			t.Errorf("%s: %+v, %v", name, gaps, err)
		}
		for _, g := range gaps { // it bounds what all have had that is no more
			if g.From.Compare(at(130)) != 0 || g.To.Compare(tt.goal) != 0 || g.By != "me" || g.Reason != "ahead_of_server" {
				t.Errorf("%s: %+v", name, g)
			}
		}
		moved := 0
		for key, c := range all(t, s) {
			if c.Generation == 0 && !reflect.DeepEqual(c, before[key]) {
				t.Errorf("%s: %+v", name, c)
			}
			moved += int(c.Generation)
			for p := range change.Partition(partitions) {
				want := before[key].In(p)
				if c.Generation == 1 && want.After(tt.goal) {
					want = tt.goal
				}
				if c.In(p).Compare(want) != 0 {
					t.Errorf("%s: %+v in partition %d, not at %s", name, c, p, want)
				}
			}
		}
		if moved != tt.ahead {
			t.Errorf("%s: %d checkpoints moved", name, moved)
		}
		if _, err := plan.Apply(t.Context(), s, "somebody else"); fault.Of(err) != fault.ClusterChanged {
			t.Errorf("%s: adopted twice by one plan: %v", name, err)
		}
	}
}

func TestAdoptOfAnotherDeploymentMustBeAccepted(t *testing.T) {
	s, mongo := world(t)
	mongo.identity = "replicaset/rs1/2"
	plan, err := admin.PlanAdopt(t.Context(), s, mongo, change.Timestamp{}, checkpoint.Backend{})
	if err != nil || !plan.NewSource || fault.Of(plan.Check(false)) != fault.CheckpointSource || plan.Check(true) != nil {
		t.Fatalf("%+v, %v", plan, err)
	}
	if origin, err := plan.Apply(t.Context(), s, "me"); err != nil || origin.Source != mongo.identity {
		t.Errorf("%+v, %v", origin, err)
	}
	if _, err := admin.PlanAdopt(t.Context(), s, mongo, at(2000).Time, checkpoint.Backend{}); fault.Of(err) != fault.CheckpointRewind {
		t.Errorf("restored to the future: %v", err)
	}
	if _, err := admin.PlanAdopt(t.Context(), checkpointtest.NewMemory(partitions), mongo, change.Timestamp{}, checkpoint.Backend{}); fault.Of(err) != fault.ClusterUnknown {
		t.Errorf("nothing to adopt: %v", err)
	}
}

func TestArchiveIsReadBackOrRefused(t *testing.T) {
	s, _ := world(t)
	connect(t, s, "gateway", checkpointtest.Event(7), map[change.Partition]change.Position{2: checkpointtest.Event(9)})
	if err := s.AddGap(t.Context(), checkpoint.Gap{From: checkpointtest.Event(1), To: checkpointtest.Event(5), Reason: "history_lost", Found: time.Now(), By: "a"}); err != nil {
		t.Fatal(err)
	}
	archive, err := admin.Export(t.Context(), s, "me")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := archive.Write(&b); err != nil {
		t.Fatal(err)
	}
	back, err := admin.ReadArchive(strings.NewReader(b.String()), "a")
	if err != nil || !back.Origin.Equal(archive.Origin) || !reflect.DeepEqual(back.Checkpoints, archive.Checkpoints) || len(back.Checkpoints) != partitions || back.By != "me" ||
		len(back.Gaps) != 1 || !reflect.DeepEqual(back.Gaps, archive.Gaps) {
		t.Errorf("%+v, %v; not %+v", back, err, archive)
	}
	for name, tt := range map[string]struct {
		old, young string
		code       fault.Code
	}{
		"newer":            {`"streamer_checkpoints": 1`, `"streamer_checkpoints": 2`, fault.CheckpointNewer},
		"something else":   {`"streamer_checkpoints": 1`, `"streamer_marks": 1`, fault.CheckpointCorrupt},
		"cut off":          {`"checkpoints": [`, ``, fault.CheckpointCorrupt},
		"a partition more": {`"partition": 2`, `"partition": 9`, fault.CheckpointCorrupt},
		"one twice":        {`"partition": 2`, `"partition": 1`, fault.CheckpointCorrupt},
		"nobody's":         {`"subscriber": "gateway"`, `"subscriber": ""`, fault.CheckpointCorrupt},
		"another number":   {`"n": 4`, `"n": 8`, fault.CheckpointPartitions},
		"a gap of nothing": {`"reason": "history_lost"`, `"reason": ""`, fault.CheckpointCorrupt},
	} {
		text := strings.Replace(b.String(), tt.old, tt.young, 1)
		if text == b.String() {
			t.Errorf("%s: nothing is replaced in %s", name, text)
		}
		if _, err := admin.ReadArchive(strings.NewReader(text), "a"); fault.Of(err) != tt.code || !strings.Contains(err.Error(), "a") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestImportPutsWhatTheArchiveHas(t *testing.T) {
	from, mongo := world(t)
	connect(t, from, "back", at(50), nil)
	connect(t, from, "both", at(50), map[change.Partition]change.Position{1: at(70)})
	connect(t, from, "stays", at(50), map[change.Partition]change.Position{1: at(70)})
	lost := checkpoint.Gap{From: at(10), To: at(20), Reason: "history_lost", Found: time.Now().Round(0).UTC(), By: "a"}
	if err := from.AddGap(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	archive, err := admin.Export(t.Context(), from, "ann")
	if err != nil {
		t.Fatal(err)
	}
	terms := make([]change.Term, partitions)
	for p := range terms {
		terms[p] = change.Term{Partition: change.Partition(p), Epoch: change.Epoch{Incarnation: 1, Revision: 9}, Context: t.Context()}
	}
	apply := func(s *checkpointtest.Memory) *admin.ImportPlan {
		t.Helper()
		plan, err := admin.PlanImport(t.Context(), s, mongo, archive)
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Create(t.Context(), s, checkpoint.Backend{Store: checkpoint.BackendMongo}); err != nil {
			t.Fatal(err)
		}
		if err := plan.Apply(t.Context(), s, terms, "me", "file"); err != nil {
			t.Fatal(err)
		}
		return plan
	}

	empty := checkpointtest.NewMemory(partitions)
	plan := apply(empty)
	if !plan.Creates || plan.Count(admin.New) != len(archive.Checkpoints) {
		t.Errorf("%+v", plan)
	}
	o, err := empty.Origin(t.Context())
	if err != nil || !o.Equal(archive.Origin) || o.Backend.Store != checkpoint.BackendMongo {
		t.Errorf("%+v, %v", o, err)
	}
	if gaps, err := empty.Gaps(t.Context()); err != nil || len(gaps) != 1 || gaps[0].ID() != lost.ID() {
		t.Errorf("the gap log is %+v, %v", gaps, err)
	}
	for key, c := range all(t, from) {
		got := all(t, empty)[key]
		if moved := got.Recounted(partitions); !reflect.DeepEqual(moved.Positions, c.Positions) || !same(got.Position, c.Position) || got.Reason != checkpoint.ReasonImport ||
			!strings.Contains(got.Note, "ann") || got.Claim != c.Claim {
			t.Errorf("%+v, not %+v", got, c)
		}
	}

	s, _ := world(t)
	share(t, s, 0, checkpoint.Checkpoint{Position: at(500)})
	connect(t, s, "back", at(60), nil)
	connect(t, s, "both", at(60), map[change.Partition]change.Position{1: at(65)})
	connect(t, s, "stays", at(50), map[change.Partition]change.Position{1: at(70)})
	connect(t, s, "another", at(60), nil)
	before := all(t, s)
	plan = apply(s)
	moves := map[string]admin.Move{}
	for _, step := range plan.Steps {
		name := step.Subscriber
		if step.Partition != nil {
			name = fmt.Sprint(name, *step.Partition)
		}
		moves[name] = step.Move
	}
	want := map[string]admin.Move{"back": admin.Back, "both": admin.Forward, "stays": admin.Stays, "sink0": admin.Back, "sink1": admin.Stays, "sink2": admin.Stays}
	if plan.Creates || !maps.Equal(moves, want) {
		t.Errorf("%v", moves)
	}
	after := all(t, s)
	for _, name := range []string{"stays", "another"} {
		if key := (checkpoint.Key{Subscriber: name}); !reflect.DeepEqual(after[key], before[key]) {
			t.Errorf("%+v", after[key])
		}
	}
	back, both := after[checkpoint.Key{Subscriber: "back"}], after[checkpoint.Key{Subscriber: "both"}]
	if !same(back.Position, at(50)) || back.Generation != 1 || !same(both.In(0), at(50)) || !same(both.In(1), at(70)) || !same(after[sink(0)].Position, at(100)) || after[sink(0)].Generation != 1 {
		t.Errorf("%+v", after)
	}

	// One that was renamed for an identity is for that one to claim, whoever made it.
	whole := archive.Checkpoints
	archive.Checkpoints = []checkpoint.Checkpoint{archive.Checkpoints[0]}
	archive.Checkpoints[0].Key = checkpoint.Key{Subscriber: "billing/orders"}
	archive.Checkpoints[0].Claim = checkpoint.Claim{Number: 3, Process: "p", Started: time.Unix(1000, 0).UTC(), By: "anonymous"}
	renamed := checkpointtest.NewMemory(partitions)
	apply(renamed)
	claim := checkpoint.Claim{Process: "q", Started: time.Now(), By: "billing"}
	if got, err := renamed.ClaimName(t.Context(), claim, archive.Checkpoints[0]); err != nil || got.Claim.Number != 4 || got.Reason != checkpoint.ReasonImport {
		t.Errorf("%+v, %v", got, err)
	}
	archive.Checkpoints = whole

	terms = slices.Repeat([]change.Term{{Context: t.Context(), Trusted: func() bool { return false }}}, partitions)
	nobody := checkpointtest.NewMemory(partitions)
	plan, err = admin.PlanImport(t.Context(), nobody, mongo, archive)
	if err == nil {
		err = plan.Create(t.Context(), nobody, checkpoint.Backend{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Apply(t.Context(), nobody, terms, "me", "file"); !errors.Is(err, change.ErrTermLost) || len(all(t, nobody)) != 0 {
		t.Errorf("without a claim: %v", err)
	}
}

func TestImportOfSomethingElseIsRefused(t *testing.T) {
	s, mongo := world(t)
	archive, err := admin.Export(t.Context(), s, "ann")
	if err != nil {
		t.Fatal(err)
	}
	other := archive
	other.Origin.Source = "replicaset/rs1/2"
	if _, err := admin.PlanImport(t.Context(), s, mongo, other); fault.Of(err) != fault.CheckpointSource {
		t.Errorf("of another deployment: %v", err)
	}
	other = archive
	other.Origin.Partitions = 8
	if _, err := admin.PlanImport(t.Context(), s, mongo, other); fault.Of(err) != fault.CheckpointPartitions {
		t.Errorf("of another number of partitions: %v", err)
	}
	empty := checkpointtest.NewMemory(partitions)
	plan, err := admin.PlanImport(t.Context(), empty, mongo, archive)
	if err != nil {
		t.Fatal(err)
	}
	origin := archive.Origin
	origin.Cluster = "somebody else's"
	if _, err := empty.Create(t.Context(), origin); err != nil {
		t.Fatal(err)
	}
	if err := plan.Create(t.Context(), empty, checkpoint.Backend{}); fault.Of(err) != fault.ClusterChanged {
		t.Errorf("beside a first start: %v", err)
	}
}

// keeper is a gap log as a test wants it.
type keeper struct {
	checkpoint.GapKeeper

	gaps []checkpoint.Gap
	err  error
}

func (k keeper) Gaps(context.Context) ([]checkpoint.Gap, error) { return k.gaps, k.err }

func TestGapLogIsServedAsFarAsItCanBeRead(t *testing.T) {
	gap := checkpoint.Gap{From: at(1), To: at(2), Reason: "history_lost", Found: time.Unix(5000, 0).UTC(), By: "n"}
	corrupt := fault.Newf(fault.CheckpointCorrupt, "gap/1: no reason")
	for name, tt := range map[string]struct {
		keeper keeper
		status int
		want   []string
	}{
		"empty":    {keeper{}, http.StatusOK, []string{`{"gaps":[]}`}},
		"one":      {keeper{gaps: []checkpoint.Gap{gap}}, http.StatusOK, []string{`"by":"n"`, `"reason":"history_lost"`, `"lost_from":{"time":"1970-01-01T00:16:41Z"`}},
		"some":     {keeper{gaps: []checkpoint.Gap{gap}, err: corrupt}, http.StatusOK, []string{`"by":"n"`, `"error":"STRM-CHECKPOINT-CORRUPT: gap/1: no reason"`}},
		"corrupt":  {keeper{err: corrupt}, http.StatusServiceUnavailable, []string{`"code":"STRM-CHECKPOINT-CORRUPT"`, `"remedy":"Run `}},
		"no store": {keeper{err: errors.New("away")}, http.StatusServiceUnavailable, []string{`"message":"away"`}},
	} {
		status, text := get(t, admin.ServeGaps(tt.keeper, slog.New(slog.DiscardHandler)))
		if status != tt.status {
			t.Errorf("%s: %d", name, status)
		}
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s lacks %s", name, text, want)
			}
		}
	}
}

// A node that stops says so, and not that a context was canceled.
func TestStoppingNodeSaysThatItStops(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	stop(fault.Newf(fault.NodeStopping, "the node stops"))
	w := httptest.NewRecorder()
	h := admin.ServeGaps(keeper{err: fmt.Errorf("read the gap log: %w", ctx.Err())}, slog.New(slog.DiscardHandler))
	access.Everybody().Handler(h).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if text := w.Body.String(); w.Code != http.StatusServiceUnavailable || !strings.Contains(text, `"code":"STRM-NODE-STOPPING","message":"the node stops"`) {
		t.Errorf("%d %s", w.Code, text)
	}
}

// get asks a handler, which answers in JSON.
func get(t *testing.T, h http.Handler) (status int, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	access.Everybody().Handler(h).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%v", w.Header())
	}
	return w.Code, w.Body.String()
}
