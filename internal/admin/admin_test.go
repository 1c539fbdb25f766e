//go:build wip

package admin_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
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
	entries    int64
	asked      bool // for the number of entries
	unreadable bool
}

func (s *source) Identity(context.Context) (string, error)      { return s.identity, nil }
func (s *source) Now(context.Context) (change.Timestamp, error) { return s.now, nil }

func (s *source) FirstEntry(context.Context) (change.Timestamp, bool, error) {
	return s.first, !s.unreadable, nil
}

func (s *source) CountEntries(context.Context, change.Timestamp, change.Timestamp) (int64, bool, error) {
	s.asked = true
	return s.entries, !s.unreadable, nil
}

const partitions = 4

func at(seconds uint32) change.Position { return change.At(change.Timestamp{T: 1000 + seconds, I: 1}) }

// world is a store in which partition p stands at 100 + 10·p; the last partition has no mark.
func world(t *testing.T) (*checkpoint.Memory, *source) {
	t.Helper()
	s := checkpoint.NewMemory(partitions)
	o := checkpoint.Origin{Cluster: "c", Incarnation: 1, Partitions: partitions, Source: "replicaset/rs0/1", Start: at(10).Time, At: time.Now(), By: "n"}
	if _, err := s.Found(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var terms []change.Term
	var marks []checkpoint.Mark
	for p := range change.Partition(partitions - 1) {
		terms = append(terms, change.Term{Partition: p, Epoch: change.Epoch{Incarnation: 1, Revision: 1}, Context: t.Context()})
		marks = append(marks, checkpoint.Mark{Partition: p, Position: at(100 + 10*uint32(p)), Epoch: terms[p].Epoch, At: time.Now(), By: "n", Reason: checkpoint.ReasonFinal})
	}
	if _, err := s.Claim(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Save(t.Context(), marks)...); err != nil {
		t.Fatal(err)
	}
	return s, &source{identity: o.Source, now: at(1000).Time, first: at(5).Time, entries: 1000}
}

func TestRewindIsPlannedFromTheLogsReach(t *testing.T) {
	s, mongo := world(t)
	plan, err := admin.PlanRewind(t.Context(), s, mongo, nil, at(20))
	if err != nil || plan.Check() != nil {
		t.Fatal(err, plan.Check())
	}
	if plan.Reached != admin.Reached || plan.Moves() != 3 || len(plan.Steps) != partitions || plan.Steps[3].Moves || plan.Steps[3].Events != nil || *plan.Entries != 1000 {
		t.Errorf("%+v", plan)
	}
	// Partition 2 goes back over all 100 s, partition 0 over 80 of them: each has its share of the entries.
	if *plan.Steps[2].Events != 250 || *plan.Steps[0].Events != 200 {
		t.Errorf("%d, %d events", *plan.Steps[2].Events, *plan.Steps[0].Events)
	}
	before, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mongo.first, mongo.asked = at(21).Time, false
	plan, err = admin.PlanRewind(t.Context(), s, mongo, nil, at(20))
	if err != nil || fault.Of(plan.Check()) != fault.CheckpointRewind || plan.Reached != admin.NotReached || mongo.asked {
		t.Errorf("%+v, %v", plan, err)
	}
	if _, err := plan.Apply(t.Context(), s, "me", ""); fault.Of(err) != fault.CheckpointRewind {
		t.Errorf("a plan that is refused was done: %v", err)
	}
	mongo.unreadable = true
	plan, err = admin.PlanRewind(t.Context(), s, mongo, []change.Partition{1}, at(20))
	if err != nil || plan.Check() != nil || plan.Reached != admin.Unknown || plan.Entries != nil || plan.OplogBegins != nil {
		t.Errorf("%+v, %v", plan, err)
	}
	after, err := s.List(t.Context())
	if err != nil || len(after) != len(before) || after[1].Generation != 0 {
		t.Errorf("%v, %v", after, err)
	}
	done, err := plan.Apply(t.Context(), s, "me", "because")
	if err != nil || len(done) != 1 || done[0].Generation != 1 || done[0].Position.Compare(at(20)) != 0 || done[0].Note != "because" || done[0].By != "me" {
		t.Errorf("%+v, %v", done, err)
	}
}

// The gateways that have had something of what comes again are named, from their rows.
func TestRewindNamesTheGatewaysConcerned(t *testing.T) {
	s, mongo := world(t)
	for _, r := range []checkpoint.Row{
		{Gateway: "ahead", Base: at(90)},
		{Gateway: "behind", Base: at(15)},
		{Gateway: "in one", Base: at(15), Positions: map[change.Partition]change.Position{1: at(110)}},
		{Gateway: "in one that stays", Base: at(15), Positions: map[change.Partition]change.Position{3: at(30)}},
		{Gateway: "of fewer", Base: at(15), Partitions: 2, Positions: map[change.Partition]change.Position{1: at(110)}},
	} {
		r.Process, r.Started, r.SeenAt, r.Partitions = "p", time.Now(), time.Now(), cmp.Or(r.Partitions, partitions)
		if err := s.SaveRow(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		partitions []change.Partition
		want       map[string]int
		furthest   change.Position
	}{
		{nil, map[string]int{"ahead": 3, "in one": 1}, at(90)},
		{[]change.Partition{0}, map[string]int{"ahead": 1}, at(90)},
		{[]change.Partition{3}, map[string]int{}, at(90)},
	} {
		plan, err := admin.PlanRewind(t.Context(), s, mongo, tt.partitions, at(20))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, g := range plan.Gateways {
			got[g.Gateway] = g.Partitions
			if g.Gateway == "ahead" && (!g.Furthest.Time.Equal(tt.furthest.Time.Time()) || g.SeenAt.IsZero()) {
				t.Errorf("%+v", g)
			}
		}
		if !maps.Equal(got, tt.want) || plan.GatewaysUnknown != "" {
			t.Errorf("of %v: %v, want %v", tt.partitions, got, tt.want)
		}
	}
	plan, err := admin.PlanRewind(t.Context(), blind{s}, mongo, nil, at(20))
	if err != nil || len(plan.Gateways) != 0 || plan.GatewaysUnknown != "no rows today" || plan.Check() != nil {
		t.Errorf("%+v, %v", plan, err)
	}
}

// A blind store cannot read the rows of gateways.
type blind struct{ admin.Store }

func (blind) Rows(context.Context) ([]checkpoint.Row, error) { return nil, errors.New("no rows today") }

func TestAdoptMovesBackWhatIsOfALogThatIsNoMore(t *testing.T) {
	for name, tt := range map[string]struct {
		now   change.Position
		to    change.Timestamp
		ahead int
		goal  change.Position
	}{
		"nothing is ahead":              {at(1000), change.Timestamp{}, 0, at(5)},
		"two are ahead":                 {at(105), change.Timestamp{}, 2, at(5)},
		"MongoDB has gone on since":     {at(1000), at(105).Time, 2, at(105)},
		"ahead, and the time is known":  {at(115), at(99).Time, 3, at(99)},
		"the same second is not ahead":  {at(120), change.Timestamp{}, 0, at(5)},
		"given time between two events": {at(1000), change.Timestamp{T: at(110).Time.T, I: 0}, 2, change.At(change.Timestamp{T: at(110).Time.T})},
	} {
		s, mongo := world(t)
		mongo.now = tt.now.Time
		before, _ := s.List(t.Context())
		plan, err := admin.PlanAdopt(t.Context(), s, mongo, tt.to, checkpoint.Backend{})
		if err != nil || len(plan.Ahead) != tt.ahead || plan.Check(false) != nil {
			t.Fatalf("%s: %+v, %v", name, plan, err)
		}
		origin, err := plan.Apply(t.Context(), s, "me")
		if err != nil || origin.Incarnation != 2 {
			t.Fatalf("%s: %+v, %v", name, origin, err)
		}
		gaps, err := s.Gaps(t.Context())
		if err != nil || len(gaps) != tt.ahead {
			t.Errorf("%s: %+v, %v", name, gaps, err)
		}
		for _, g := range gaps {
			if g.From.Compare(before[g.Partition].Position) != 0 || g.To.Compare(tt.goal) != 0 || g.By != "me" || g.Epoch.Incarnation != 2 {
				t.Errorf("%s: %+v", name, g)
			}
		}
		after, _ := s.List(t.Context())
		moved := 0
		for i, m := range after {
			if m.Generation == 1 && m.Position.Compare(tt.goal) == 0 {
				moved++
			} else if m.Position.Compare(before[i].Position) != 0 {
				t.Errorf("%s: %+v", name, m)
			}
		}
		if moved != tt.ahead {
			t.Errorf("%s: %d marks moved", name, moved)
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
	if _, err := admin.PlanAdopt(t.Context(), checkpoint.NewMemory(partitions), mongo, change.Timestamp{}, checkpoint.Backend{}); fault.Of(err) != fault.ClusterUnknown {
		t.Errorf("nothing to adopt: %v", err)
	}
}

func TestArchiveIsReadBackOrRefused(t *testing.T) {
	s, _ := world(t)
	archive, err := admin.Export(t.Context(), s, "me")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := archive.Write(&b); err != nil {
		t.Fatal(err)
	}
	back, err := admin.ReadArchive(strings.NewReader(b.String()), "a")
	if err != nil || !back.Origin.Equal(archive.Origin) || len(back.Marks) != partitions-1 || back.Marks[1].Position.Compare(at(110)) != 0 || back.By != "me" {
		t.Errorf("%+v, %v", back, err)
	}
	for name, tt := range map[string]struct {
		old, young string
		code       fault.Code
	}{
		"newer":            {`"streamer_marks": 1`, `"streamer_marks": 2`, fault.CheckpointNewer},
		"something else":   {`"streamer_marks": 1`, `"marks_of": 1`, fault.CheckpointCorrupt},
		"cut off":          {`"marks": [`, ``, fault.CheckpointCorrupt},
		"a partition more": {`"partition": 2`, `"partition": 9`, fault.CheckpointCorrupt},
		"one twice":        {`"partition": 2`, `"partition": 1`, fault.CheckpointCorrupt},
		"another number":   {`"n": 4`, `"n": 8`, fault.CheckpointPartitions},
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

// keeper is a gap log as a test wants it.
type keeper struct {
	checkpoint.GapKeeper

	gaps []checkpoint.Gap
	err  error
}

func (k keeper) Gaps(context.Context) ([]checkpoint.Gap, error) { return k.gaps, k.err }

func TestGapLogIsServedAsFarAsItCanBeRead(t *testing.T) {
	gap := checkpoint.Gap{Partition: 3, From: at(1), To: at(2), Reason: "history_lost", Found: time.Unix(5000, 0).UTC(), By: "n"}
	corrupt := fault.Newf(fault.CheckpointCorrupt, "gap/1: no reason")
	for name, tt := range map[string]struct {
		keeper keeper
		status int
		want   []string
	}{
		"empty":    {keeper{}, http.StatusOK, []string{`{"gaps":[]}`}},
		"one":      {keeper{gaps: []checkpoint.Gap{gap}}, http.StatusOK, []string{`"partition":3`, `"reason":"history_lost"`, `"lost_from":{"time":"1970-01-01T00:16:41Z"`}},
		"some":     {keeper{gaps: []checkpoint.Gap{gap}, err: corrupt}, http.StatusOK, []string{`"partition":3`, `"error":"STRM-CHECKPOINT-CORRUPT: gap/1: no reason"`}},
		"corrupt":  {keeper{err: corrupt}, http.StatusServiceUnavailable, []string{`"code":"STRM-CHECKPOINT-CORRUPT"`, `"remedy":"Look at`}},
		"no store": {keeper{err: errors.New("away")}, http.StatusServiceUnavailable, []string{`"message":"away"`}},
	} {
		w := httptest.NewRecorder()
		admin.ServeGaps(tt.keeper).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/gaps", nil))
		if w.Code != tt.status || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d, %v", name, w.Code, w.Header())
		}
		for _, want := range tt.want {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %s lacks %s", name, w.Body, want)
			}
		}
	}
}
