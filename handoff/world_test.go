package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/handoff/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What the toy cluster is made of.
const (
	p = change.Partition(7)

	ttl     = 10 * time.Second
	margin  = ttl / 3
	renewal = 2 * time.Second

	tick = 10 * time.Millisecond
)

var (
	errCut  = errors.New("no connection")
	errDead = errors.New("dead")
)

// A world is a cluster of toys: a store with leases, nodes, a log of numbered events, and two sessions that want all of them. Its state
// changes under one mutex; time is the bubble's.
type world struct {
	testing.TB

	start time.Time
	tick  time.Duration
	rest  time.Duration // how long settling takes
	apart bool          // marks stand apart from the owner keys, with a fence of their own

	mu struct {
		sync.Mutex

		log      []string
		revision int64
		owner    roster.Owner
		lease    *lease // of the owner
		record   ledger.Record
		recordOf *lease
		answer   ledger.Answer
		answerOf *lease
		mark     int
		fence    change.Epoch
		hints    map[chan struct{}]*node
		nodes    map[string]*node // the latest process of each
		leases   []*lease
		head     int
		quiet    bool // no more events
		begun    map[change.Epoch]string
		switched map[time.Time]bool // handoffs by when they began
		reports  []handoff.Report
		keeper   session // keeps its own position
		marked   session // keeps none
		points   map[string]func()
		longest  time.Duration // between two events at the keeper
		twice    int           // events that the keeper was sent again
	}
	running sync.WaitGroup
}

// A session has handled the log up to had.
type session struct {
	had  int
	last time.Time
}

// A lease lives while it is renewed.
type lease struct {
	of    *node
	until time.Time
	over  bool
}

// inWorld runs a test in a bubble, whose time is the world's.
func inWorld(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// pause lets the bubble's time pass.
func (w *world) pause(d time.Duration) { time.Sleep(d) }

func newWorld(t testing.TB) *world {
	w := &world{TB: t, start: time.Now(), tick: tick, rest: 50 * time.Second}
	w.mu.hints, w.mu.nodes = make(map[chan struct{}]*node), make(map[string]*node)
	w.mu.begun, w.mu.switched, w.mu.points = make(map[change.Epoch]string), make(map[time.Time]bool), make(map[string]func())
	w.mu.revision = 100
	w.mu.keeper.last = w.start
	return w
}

func (w *world) sayLocked(format string, args ...any) {
	w.mu.log = append(w.mu.log, fmt.Sprintf("%8.3fs  ", time.Since(w.start).Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sayLocked(format, args...)
}

func (w *world) transcript() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.mu.log, "\n") + "\n"
}

// broken says that a promise is.
func (w *world) brokenLocked(format string, args ...any) {
	w.Helper()
	w.sayLocked("BROKEN: "+format, args...)
	w.Errorf("after %.3fs: "+format, append([]any{time.Since(w.start).Seconds()}, args...)...)
}

// at lets f happen when a point is passed for the first time.
func (w *world) at(point string, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.points[point] = f
}

func (w *world) pass(point string) {
	w.mu.Lock()
	f := w.mu.points[point]
	delete(w.mu.points, point)
	w.mu.Unlock()
	if f != nil {
		f()
	}
}

// write counts a write of the store and tells everybody who can hear.
func (w *world) writeLocked() int64 {
	w.mu.revision++
	for c, n := range w.mu.hints {
		if n.reachesLocked() {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
	return w.mu.revision
}

// expire ends leases that have run out, with what stands under them.
func (w *world) expireLocked() {
	for _, l := range w.mu.leases {
		if l.over || time.Now().Before(l.until) {
			continue
		}
		l.over = true
		w.sayLocked("the lease of %s ends", l.of.name)
		if w.mu.lease == l {
			w.mu.owner, w.mu.lease = roster.Owner{}, nil
		}
		if w.mu.recordOf == l {
			w.mu.record, w.mu.recordOf = ledger.Record{}, nil
		}
		if w.mu.answerOf == l {
			w.mu.answer, w.mu.answerOf = ledger.Answer{}, nil
		}
		w.writeLocked()
	}
}

// putMark moves the mark, as the store does once it has found that the epoch may.
func (w *world) putMarkLocked(n *node, e change.Epoch, to int) {
	if !w.apart && (w.mu.owner.Epoch != e || w.mu.owner.Process != n.process) {
		w.brokenLocked("a mark by %s under %s, which owns nothing", n.process, e)
	}
	if to > w.mu.marked.had {
		w.brokenLocked("the mark %d passes what was handled, %d", to, w.mu.marked.had)
	}
	w.mu.mark = max(w.mu.mark, to)
}

// run moves the world until the context ends.
func (w *world) run(ctx context.Context) {
	ticks := time.NewTicker(w.tick)
	defer ticks.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticks.C:
			w.turn()
		case <-ctx.Done():
		}
	}
}

// turn lets everybody do what is due.
func (w *world) turn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expireLocked()
	if !w.mu.quiet {
		w.mu.head++
	}
	names := slices.Sorted(maps.Keys(w.mu.nodes))
	for _, name := range names {
		if n := w.mu.nodes[name]; n.awakeLocked() {
			n.tickLocked()
		}
	}
	for _, name := range names {
		if n := w.mu.nodes[name]; w.mu.owner.Process == "" && n.livesLocked() && !n.reluctant {
			w.mu.owner = roster.Owner{Node: n.name, Process: n.process, Epoch: change.Epoch{Incarnation: 1, Revision: uint64(w.writeLocked())}}
			w.mu.lease = n.lease
			w.sayLocked("%s claims the partition at epoch %s", n.name, w.mu.owner.Epoch)
		}
	}
	for _, name := range names {
		n := w.mu.nodes[name]
		if n.servesLocked() && !n.attached(keeper) && w.alone(keeper) {
			n.attachLocked(keeper, w.mu.keeper.had)
		}
		if n.servesLocked() && !n.overlaps && !n.attached(marked) && w.alone(marked) {
			if n.hold > w.mu.marked.had {
				w.brokenLocked("a session that begins at the mark %d misses events behind %d", n.hold, w.mu.marked.had)
			}
			n.attachLocked(marked, n.hold)
		}
	}
}

// alone reports whether nobody serves a session.
func (w *world) alone(s string) bool {
	for _, n := range w.mu.nodes {
		if n.attached(s) && n.servesLocked() {
			return false
		}
	}
	return true
}

// handle lets a session handle an event, of which it drops what it has had.
func (w *world) handleLocked(n *node, name string, event int) {
	s := &w.mu.keeper
	if name == marked {
		s = &w.mu.marked
	}
	switch {
	case event > s.had+1:
		w.brokenLocked("%s gave the %s session event %d after %d", n.name, name, event, s.had)
	case event == s.had+1:
		if name == keeper {
			w.mu.longest = max(w.mu.longest, time.Since(s.last))
		}
		s.had, s.last = event, time.Now()
	case name == keeper:
		w.mu.twice++
	}
}

// call carries a call of a node to the store and its answer back.
func (n *node) call(ctx context.Context, do func() error) error {
	n.w.running.Add(1)
	defer n.w.running.Done()
	fate := n.fate()
	n.wait(context.WithoutCancel(ctx), n.latency)
	if !n.reaches() || fate == requestLost {
		return n.unanswered(ctx)
	}
	if fate == late {
		n.w.running.Go(func() {
			n.wait(context.WithoutCancel(ctx), n.delay())
			n.w.mu.Lock()
			defer n.w.mu.Unlock()
			n.w.expireLocked()
			_ = do()
		})
		return n.unanswered(ctx)
	}
	n.w.mu.Lock()
	n.w.expireLocked()
	err := do()
	n.w.mu.Unlock()
	n.wait(context.WithoutCancel(ctx), n.latency)
	if fate == answerLost || !n.reaches() {
		return n.unanswered(ctx)
	}
	return err
}

// unanswered is how a call ends of which nobody knows whether it was carried out.
func (n *node) unanswered(ctx context.Context) error {
	if n.isDead() {
		return errDead
	}
	<-ctx.Done()
	return fmt.Errorf("%w: %w", errCut, context.Cause(ctx))
}

// wait waits, and as long as the node stands still.
func (n *node) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	n.gate()
}

// settle lets everything heal and come to rest, and looks whether all is as promised.
func (w *world) settle() {
	w.mu.Lock()
	for _, n := range w.mu.nodes {
		n.cut, n.chaos = false, nil
	}
	w.mu.Unlock()
	time.Sleep(w.rest)
	w.mu.Lock()
	w.mu.quiet = true
	w.mu.Unlock()
	time.Sleep(5 * time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	serving := 0
	for _, n := range w.mu.nodes {
		if n.servesLocked() {
			serving++
			if n.term.Epoch != w.mu.owner.Epoch {
				w.brokenLocked("%s serves under %s, the owner's epoch is %s", n.name, n.term.Epoch, w.mu.owner.Epoch)
			}
			if n.sealed {
				w.brokenLocked("%s saves no marks", n.name)
			}
			if n.warm != "" {
				w.brokenLocked("%s still has a cursor that is %s", n.name, n.warm)
			}
		}
	}
	if serving != 1 {
		w.brokenLocked("%d nodes serve", serving)
	}
	if w.mu.record.Revision != 0 {
		w.brokenLocked("the record is still there: %+v", w.mu.record)
	}
	if w.mu.keeper.had != w.mu.head || w.mu.marked.had != w.mu.head || w.mu.mark != w.mu.head {
		w.brokenLocked("of %d events the sessions have had %d and %d, the mark stands at %d",
			w.mu.head, w.mu.keeper.had, w.mu.marked.had, w.mu.mark)
	}
	for _, r := range w.mu.reports {
		// A recipient may also have claimed the partition of a donor whose lease had ended.
		moved := w.mu.switched[r.Record.Started]
		if r.Outcome == handoff.Moved && r.Side == handoff.Giving && !moved || r.Outcome == handoff.Stayed && moved {
			w.brokenLocked("the %s side says %s, switched: %t", r.Side, r.Outcome, moved)
		}
	}
}

// positionOf makes the position of an event, numberOf finds it again.
func positionOf(event int) change.Position {
	if event == 0 {
		return change.Position{}
	}
	return change.At(change.Timestamp{T: uint32(event), I: 1})
}

func numberOf(at change.Position) int { return int(at.Time.T) }

func (w *world) markOf(at int, e change.Epoch) checkpoint.Mark {
	return checkpoint.Mark{Partition: p, Position: positionOf(at), Epoch: e}
}
