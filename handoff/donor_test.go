package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/notice"
)

// A script is both sides of a donor: what it serves and what it owns. It writes down what the donor
// has them do.
type script struct {
	mu    sync.Mutex
	lines []string

	drains    time.Duration // how long draining takes
	transfers func(to cluster.Member, terms []change.Term) (int, error)
	view      func() cluster.View
}

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *script) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "; ")
}

func numbers(terms []change.Term) (all []change.Partition) {
	for _, t := range terms {
		all = append(all, t.Partition)
	}
	slices.Sort(all)
	return all
}

// Drain implements handoff.Server.
func (s *script) Drain(_ context.Context, terms []change.Term) {
	time.Sleep(s.drains)
	s.note("drain %v", numbers(terms))
}

// Broadcast implements handoff.Server.
func (s *script) Broadcast(window []change.Term) { s.note("broadcast %v", numbers(window)) }

// Announce implements handoff.Server.
func (s *script) Announce(to string, moved []change.Partition) {
	s.note("announce %v at %s", moved, to)
}

// Transfer implements handoff.Owner.
func (s *script) Transfer(_ context.Context, to cluster.Member, terms []change.Term) (int, error) {
	s.note("transfer %v to %s", numbers(terms), to.Node)
	if s.transfers != nil {
		return s.transfers(to, terms)
	}
	return len(terms), nil
}

// Window implements handoff.Owner.
func (s *script) Window(terms []change.Term, d time.Duration) []change.Term {
	s.note("window of %s", d)
	return terms
}

// Keep implements handoff.Owner.
func (s *script) Keep(term change.Term) { s.note("keep %d", term.Partition) }

// planned is a view in which the plan assigns partitions to nodes; all of them are members who take
// partitions, but for those named.
func planned(owners string, unfit ...string) func() cluster.View {
	v := cluster.View{Plan: cluster.Plan{Version: 7, Cause: "test", Owners: strings.Fields(owners)}}
	for _, node := range []string{"a", "b", "c"} {
		m := cluster.Member{Heartbeat: cluster.Heartbeat{
			Node: node, Process: "p" + node, Status: cluster.StatusHealthy, Checks: map[string]bool{cluster.CheckMongoDB: !slices.Contains(unfit, node)},
		}}
		v.Members = append(v.Members, m)
	}
	return func() cluster.View { return v }
}

// give has a donor, node a, hand over the offered partitions, and returns its notices.
func give(t *testing.T, s *script, reg prometheus.Registerer, offers ...[]change.Partition) (notices []notice.Notice) {
	t.Helper()
	board := notice.NewBoard(notice.Config{})
	donor := handoff.NewDonor(handoff.Config{
		Node: "a", Partitions: 4, Server: s, Owner: s, Overlap: 3 * time.Second, View: func() (cluster.View, bool) { return s.view(), true }, Board: board,
		Registerer: reg,
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { donor.Run(ctx) })
	for _, offer := range offers {
		var terms []change.Term
		for _, p := range offer {
			terms = append(terms, change.Term{Partition: p, Epoch: change.Epoch{Incarnation: 1, Revision: 9}, Context: t.Context()})
		}
		donor.Offer(terms)
	}
	time.Sleep(time.Minute)
	stop()
	running.Wait()
	all, _ := board.Since(0)
	return all
}

func TestDonorDrainsThenTransfersThenBroadcasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reg := &script{view: planned("b b a b"), drains: 50 * time.Millisecond}, prometheus.NewRegistry()
		notices := give(t, s, reg, []change.Partition{1, 0}, []change.Partition{3})
		want := "drain [0 1]; transfer [0 1] to b; window of 3s; broadcast [0 1]; announce [0 1] at b; " +
			"drain [3]; transfer [3] to b; window of 3s; broadcast [3]; announce [3] at b"
		if s.text() != want {
			t.Errorf("it did: %s\nwant:   %s", s.text(), want)
		}
		if len(notices) != 2 || notices[0].Kind != notice.KindHandedOver || notices[0].Level != notice.Info || notices[0].Fields["handed_over"] != 2 ||
			notices[0].Fields["took_ms"] != int64(50) {
			t.Errorf("%+v", notices)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		counted := map[string]float64{}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				for _, label := range m.GetLabel() {
					counted[label.GetValue()] = m.GetCounter().GetValue()
				}
				if h := m.GetHistogram(); h != nil && h.GetSampleCount() != 3 {
					t.Errorf("%s has %d samples", family.GetName(), h.GetSampleCount())
				}
			}
		}
		if counted["moved"] != 3 || counted["given_back"] != 0 {
			t.Errorf("counted %v", counted)
		}
	})
}

// A term that no node takes is kept, and nothing is done about it: drained, its partition would
// have no owner.
func TestDonorKeepsWhatNobodyTakes(t *testing.T) {
	for name, c := range map[string]struct {
		owners string
		unfit  []string
		want   string
	}{
		"the plan has changed":              {"a b a a", nil, "keep 0"},
		"the target has left":               {"gone b a a", nil, "keep 0"},
		"the target does not reach MongoDB": {"b b a a", []string{"b"}, "keep 0"},
		"there is no plan":                  {"", nil, "keep 0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{view: planned(c.owners, c.unfit...)}
				if notices := give(t, s, nil, []change.Partition{0}); s.text() != c.want || len(notices) > 0 {
					t.Errorf("it did: %s, and told %+v", s.text(), notices)
				}
			})
		})
	}
}

// While one handoff takes its time the target of the next may go: what is offered is judged when
// its turn comes.
func TestDonorJudgesAnOfferWhenItsTurnComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{drains: 5 * time.Second}
		begun := time.Now()
		s.view = func() cluster.View {
			if time.Since(begun) < time.Second {
				return planned("b c a a")()
			}
			return planned("b c a a", "c")()
		}
		give(t, s, nil, []change.Partition{0}, []change.Partition{1})
		if want := "drain [0]; transfer [0] to b; window of 3s; broadcast [0]; announce [0] at b; keep 1"; s.text() != want {
			t.Errorf("it did: %s", s.text())
		}
	})
}

// What could not be transferred is counted and told as such. The terms have been drained: they are
// not this node's, whatever has become of the transaction.
func TestDonorTellsWhatItCouldNotTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{view: planned("b b b a"), transfers: func(cluster.Member, []change.Term) (int, error) { return 1, errors.New("no answer") }}
		notices := give(t, s, nil, []change.Partition{0, 1, 2})
		if !strings.HasSuffix(s.text(), "transfer [0 1 2] to b; window of 3s; broadcast [0 1 2]; announce [0 1 2] at b") {
			t.Errorf("it did: %s", s.text())
		}
		if len(notices) != 1 || notices[0].Level != notice.Warning || notices[0].Fields["handed_over"] != 1 ||
			!strings.Contains(notices[0].Text, "2 were given back") {
			t.Errorf("%+v", notices)
		}
	})
}
