package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/handoff/ledger"
)

// The sessions.
const (
	keeper = "keeper"
	marked = "marked"
)

// A fate is what becomes of a call.
type fate int

const (
	arrives fate = iota
	requestLost
	answerLost
	late // carried out when nobody waits for it any more
)

// A node is one process: a member, with what it serves of the partition.
type node struct {
	w             *world
	name, process string
	latency       time.Duration
	warming       time.Duration // how long it takes to warm
	reluctant     bool          // claims nothing
	desk          *handoff.Desk
	stop          context.CancelFunc
	ended         sync.WaitGroup

	// Under the world's mutex.
	dead, cut bool
	frozen    time.Time // stands still until then
	chaos     *rand.Rand
	fails     map[string]error // calls of the node itself that fail once
	lease     *lease
	sent      time.Time // when the renewal was sent that the lease lives of

	term     change.Term
	end      context.CancelCauseFunc
	serves   bool
	overlaps bool
	until    time.Time // of the overlap
	sealed   bool
	hold     int
	saved    int
	warm     string // a silent cursor: cold, warm
	sessions map[string]*place
}

// A place is where a session stands at a node.
type place struct{ sent, acked int }

// newNode starts a process.
func (w *world) newNode(name string, cfg handoff.Config, latency time.Duration) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &node{
		w: w, name: name, process: fmt.Sprintf("%s%d", name, w.mu.revision), latency: latency, warming: 20 * time.Millisecond,
		sessions: make(map[string]*place), fails: make(map[string]error),
	}
	w.mu.nodes[name] = n
	cfg.Self = ledger.Party{Node: name, Process: n.process}
	cfg.Trusted, cfg.Clock = n.trusted, n.clock
	cfg.Ended = func(r handoff.Report) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if n.dead {
			return
		}
		why := ""
		if r.Why != nil {
			why = fmt.Sprintf(" (%v)", r.Why)
		}
		w.sayLocked("%s: %s has ended: %s%s", name, r.Side, r.Outcome, why)
		w.mu.reports = append(w.mu.reports, r)
	}
	n.desk = handoff.NewDesk(cfg, n)
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	n.join()
	n.ended.Go(func() { _ = n.desk.RunDonor(ctx, n, donor{n}, n) })
	n.ended.Go(func() { _ = n.desk.RunRecipient(ctx, n, recipient{n}, marks{n}) })
	n.ended.Go(func() { n.renew(ctx) })
	return n
}

// join grants the node a new lease.
func (n *node) join() {
	n.sent = time.Now()
	n.lease = &lease{of: n, until: n.sent.Add(ttl)}
	n.w.mu.leases = append(n.w.mu.leases, n.lease)
}

// kill makes an end of a process, as kill -9 does.
func (n *node) kill() {
	n.w.mu.Lock()
	n.dead = true
	n.serves, n.sessions = false, nil
	if n.end != nil {
		n.end(errDead)
	}
	n.w.sayLocked("%s is killed", n.name)
	n.w.mu.Unlock()
	n.stop()
}

// freeze lets a process stand still.
func (n *node) freeze(d time.Duration) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.sayLocked("%s stands still for %s", n.name, d)
	n.frozen = time.Now().Add(d)
}

// isolate cuts a node off from the store.
func (n *node) isolate(cut bool) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.sayLocked("%s is cut off: %t", n.name, cut)
	n.cut = cut
}

// fail lets a call of the node itself fail once.
func (n *node) fail(what string, err error) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.fails[what] = err
}

func (n *node) failure(what string) error {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	err := n.fails[what]
	delete(n.fails, what)
	if err != nil {
		n.w.sayLocked("%s: %s: %v", n.name, what, err)
	}
	return err
}

// gate waits while the node stands still.
func (n *node) gate() {
	for {
		n.w.mu.Lock()
		left := time.Until(n.frozen)
		n.w.mu.Unlock()
		if left <= 0 {
			return
		}
		n.w.pause(left)
	}
}

func (n *node) isDead() bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.dead
}

func (n *node) reaches() bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.reachesLocked()
}

func (n *node) reachesLocked() bool { return !n.dead && !n.cut }
func (n *node) awakeLocked() bool   { return !n.dead && !time.Now().Before(n.frozen) }
func (n *node) trustedLocked() bool { return !n.dead && time.Now().Before(n.sent.Add(ttl-margin)) }
func (n *node) livesLocked() bool {
	return n.reachesLocked() && n.awakeLocked() && n.trustedLocked() && !n.lease.over
}
func (n *node) attached(s string) bool { return n.sessions[s] != nil }
func (n *node) servesLocked() bool     { return n.serves && n.awakeLocked() && n.trustedLocked() }

func (n *node) trusted() bool {
	n.gate()
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.trustedLocked()
}

func (n *node) clock() time.Duration {
	n.gate()
	return time.Since(n.w.start)
}

// fate says what becomes of a call, where there is chaos.
func (n *node) fate() fate {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.chaos == nil || n.chaos.IntN(4) > 0 {
		return arrives
	}
	return fate(1 + n.chaos.IntN(3))
}

func (n *node) delay() time.Duration {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.chaos == nil {
		return time.Second
	}
	return time.Duration(n.chaos.Int64N(int64(6 * time.Second)))
}

// renew keeps the lease alive, and joins again once it has ended.
func (n *node) renew(ctx context.Context) {
	for ctx.Err() == nil {
		n.gate()
		n.w.pause(4 * n.latency) // after whatever else the node does when it moves again
		n.w.mu.Lock()
		if n.reachesLocked() {
			if n.w.expireLocked(); !n.lease.over {
				n.sent = time.Now()
				n.lease.until = n.sent.Add(ttl)
			} else if !n.serves && n.warm == "" {
				n.w.sayLocked("%s joins again", n.name)
				n.join()
			}
		}
		n.w.mu.Unlock()
		n.wait(ctx, renewal+n.latency/10)
	}
}

// tickLocked moves what the node does by itself: it begins and ends terms, delivers, and saves marks.
func (n *node) tickLocked() {
	w := n.w
	owns := w.mu.owner.Process == n.process && w.mu.owner.Epoch == n.term.Epoch
	switch {
	case n.serves && !n.trustedLocked():
		w.sayLocked("%s serves no more: its lease cannot be trusted", n.name)
		n.stopLocked(change.ErrTermLost)
	case n.overlaps && !time.Now().Before(n.until):
		n.stopLocked(nil)
	case n.serves && !n.overlaps && !owns && n.reachesLocked() && !n.desk.Alone(p):
		w.sayLocked("%s serves no more: it does not own the partition", n.name)
		n.stopLocked(change.ErrTermLost)
	case !n.serves && n.livesLocked() && w.mu.owner.Process == n.process && !n.desk.Alone(p):
		n.claimLocked(w.mu.owner.Epoch)
	}
	if !n.serves {
		return
	}
	for name, at := range n.sessions {
		for ; at.acked < at.sent; at.acked++ {
			w.handleLocked(n, name, at.acked+1)
		}
		at.sent = w.mu.head
	}
	if low := n.lowLocked(); low > n.saved && !n.sealed && n.reachesLocked() {
		n.saved = low
		if w.apart && w.mu.fence == n.term.Epoch || !w.apart && owns {
			w.putMarkLocked(n, n.term.Epoch, low)
		}
	}
}

// lowLocked is how far a mark may go: in hold it stands.
func (n *node) lowLocked() int {
	if n.sessions[marked] == nil {
		return n.hold
	}
	low := n.sessions[marked].acked
	if k := n.sessions[keeper]; k != nil {
		low = min(low, k.acked)
	}
	return low
}

func (n *node) attachLocked(s string, at int) {
	n.sessions[s] = &place{at, at}
	n.w.sayLocked("the %s session attaches to %s", s, n.name)
}

func (n *node) claimLocked(e change.Epoch) {
	if _, err := n.fencedLocked(e); err != nil {
		return
	}
	n.beginLocked(n.adoptLocked(e), n.w.mu.mark)
}

// fencedLocked claims the mark.
func (n *node) fencedLocked(e change.Epoch) (int, error) {
	w := n.w
	switch {
	case w.apart && w.mu.fence.Compare(e) > 0, !w.apart && w.mu.owner.Epoch != e:
		return 0, checkpoint.ErrFenced
	case w.apart:
		w.mu.fence = e
	}
	return w.mu.mark, nil
}

func (n *node) adoptLocked(e change.Epoch) change.Term {
	if n.term.Epoch == e {
		return n.term
	}
	ctx, end := context.WithCancelCause(context.Background())
	n.term, n.end = change.Term{Partition: p, Epoch: e, Context: ctx, Trusted: n.trusted}, end
	return n.term
}

func (n *node) beginLocked(t change.Term, mark int) {
	if by := n.w.mu.begun[t.Epoch]; by != "" && by != n.process {
		n.w.brokenLocked("%s and %s serve under epoch %s", by, n.process, t.Epoch)
	}
	n.w.mu.begun[t.Epoch] = n.process
	n.serves, n.overlaps, n.sealed, n.hold, n.saved, n.warm = true, false, false, mark, mark, ""
	n.w.sayLocked("%s serves at epoch %s from %s", n.name, t.Epoch, "its mark")
}

func (n *node) stopLocked(cause error) {
	n.serves, n.overlaps, n.sealed = false, false, false
	clear(n.sessions)
	n.end(cause)
}

// The ledger, as the node reaches it.

func (n *node) Prepare(ctx context.Context, r ledger.Record) (ledger.Record, error) {
	w := n.w
	err := n.call(ctx, func() error {
		switch {
		case w.mu.record.Revision != 0:
			return ledger.ErrMoving
		case w.mu.owner.Epoch != r.Epoch:
			return ledger.ErrStale
		}
		r.Revision = w.writeLocked()
		w.mu.record, w.mu.recordOf, w.mu.answer = r, w.mu.lease, ledger.Answer{}
		w.sayLocked("%s prepares a handoff to %s", n.name, r.To.Node)
		return nil
	})
	if err != nil {
		return ledger.Record{}, err // a request that comes late may still write to r
	}
	return r, nil
}

func (n *node) Look(ctx context.Context, _ change.Partition) (ledger.Sight, error) {
	var s ledger.Sight
	err := n.call(ctx, func() error {
		s = ledger.Sight{Record: n.w.mu.record, Answer: n.w.mu.answer, Owner: n.w.mu.owner}
		s.Absent = s.Record.Revision != 0 && !slices.ContainsFunc(n.w.mu.leases, func(l *lease) bool {
			return !l.over && l.of.process == s.Record.To.Process
		})
		return nil
	})
	if err != nil {
		return ledger.Sight{}, err
	}
	return s, nil
}

func (n *node) List(ctx context.Context) ([]ledger.Record, error) {
	var all []ledger.Record
	err := n.call(ctx, func() error {
		if n.w.mu.record.Revision != 0 {
			all = append(all, n.w.mu.record)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (n *node) Hints(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.mu.hints[c] = n
	context.AfterFunc(ctx, func() {
		n.w.mu.Lock()
		defer n.w.mu.Unlock()
		delete(n.w.mu.hints, c)
		close(c)
	})
	return c
}

func (n *node) Switch(ctx context.Context, r ledger.Record, a ledger.Answer, m checkpoint.Mark) (ledger.Record, error) {
	w := n.w
	if err := n.failure("switch"); err != nil {
		return r, err
	}
	if w.apart {
		err := n.call(ctx, func() error {
			if w.mu.fence != m.Epoch {
				return ledger.ErrStale
			}
			w.putMarkLocked(n, m.Epoch, numberOf(m.Position))
			return nil
		})
		if err != nil {
			return r, err
		}
	}
	w.pass("switch sent")
	err := n.call(ctx, func() error {
		switch {
		case w.mu.record.Same(r) && w.mu.record.Phase == ledger.Switched:
			r = w.mu.record
			return nil
		case w.mu.owner.Epoch != m.Epoch || w.mu.record.Revision != r.Revision || w.mu.answer.Revision != a.Revision || w.mu.answerOf.over:
			w.sayLocked("%s switches: stale", n.name)
			return ledger.ErrStale
		}
		for _, report := range w.mu.reports {
			if report.Record.Same(r) && report.Side == handoff.Giving && report.Outcome == handoff.Stayed {
				w.brokenLocked("a handoff is switched that was abandoned")
			}
		}
		if !w.apart {
			w.putMarkLocked(n, m.Epoch, numberOf(m.Position))
		}
		r.Phase, r.Revision = ledger.Switched, w.writeLocked()
		w.mu.record, w.mu.lease = r, w.mu.answerOf
		w.mu.owner = roster.Owner{Node: r.To.Node, Process: r.To.Process, Epoch: change.Epoch{Incarnation: 1, Revision: uint64(r.Revision)}}
		w.mu.switched[r.Started] = true
		w.sayLocked("%s switches: %s owns the partition at epoch %s", n.name, r.To.Node, w.mu.owner.Epoch)
		return nil
	})
	if err != nil {
		return ledger.Record{}, err
	}
	return r, nil
}

func (n *node) Close(ctx context.Context, r ledger.Record) error {
	n.w.pass("close")
	if err := n.failure("close"); err != nil {
		return err
	}
	return n.call(ctx, func() error {
		switch n.w.mu.record.Revision {
		case 0:
			return nil
		case r.Revision:
			n.w.mu.record, n.w.mu.recordOf, n.w.mu.answer, n.w.mu.answerOf = ledger.Record{}, nil, ledger.Answer{}, nil
			n.w.writeLocked()
			n.w.sayLocked("%s takes the record away", n.name)
			return nil
		}
		return ledger.ErrStale
	})
}

func (n *node) Answer(ctx context.Context, r ledger.Record, refusal string) error {
	n.w.pass("answer")
	if err := n.failure("answer"); err != nil {
		return err
	}
	return n.call(ctx, func() error {
		if n.w.mu.record.Revision != r.Revision || n.lease.over {
			return ledger.ErrStale
		}
		n.w.mu.answer, n.w.mu.answerOf = ledger.Answer{To: r.Revision, Refusal: refusal, Revision: n.w.writeLocked()}, n.lease
		n.w.sayLocked("%s answers %q", n.name, refusal)
		return nil
	})
}

// A donor is the node as the desk sees it when it gives.
type donor struct{ *node }

func (n donor) Term(change.Partition) (change.Term, bool) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.term, n.serves && !n.overlaps
}

func (n donor) Seal(_ change.Partition, e change.Epoch) (checkpoint.Mark, error) {
	if err := n.failure("seal"); err != nil {
		return checkpoint.Mark{}, err
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if !n.serves || n.term.Epoch != e {
		return checkpoint.Mark{}, change.ErrTermLost
	}
	n.sealed = true
	return n.w.markOf(n.lowLocked(), e), nil
}

func (n donor) Unseal(_ change.Partition, e change.Epoch) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.term.Epoch == e {
		n.sealed = false
	}
}

func (n donor) DeliverOn(_ change.Partition, e change.Epoch, window time.Duration) {
	n.w.pass("overlap")
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.dead || !n.serves || n.term.Epoch != e {
		return
	}
	n.w.sayLocked("%s delivers on for %s", n.name, window)
	n.overlaps, n.sealed, n.until = true, true, time.Now().Add(window)
	n.end(change.ErrTermLost)
	if window == 0 {
		n.stopLocked(nil)
	}
}

// Tell implements handoff.Sessions: the keeper attaches to the other node some time after it was told to.
func (n *node) Tell(_ change.Partition, word handoff.Word, to ledger.Party) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.dead {
		return
	}
	n.w.sayLocked("%s tells sessions: %s, %s", n.name, word, to.Node)
	other := n.w.mu.nodes[to.Node]
	if word == handoff.SayStays {
		return
	}
	n.w.running.Go(func() {
		n.w.pause(30*time.Millisecond + n.latency)
		n.w.mu.Lock()
		defer n.w.mu.Unlock()
		if other.process == to.Process && other.awakeLocked() && other.trustedLocked() && !other.attached(keeper) && other.sessions != nil {
			other.attachLocked(keeper, n.w.mu.keeper.had)
		}
	})
}

// A recipient is the node as the desk sees it when it takes.
type recipient struct{ *node }

func (n recipient) Warm(ctx context.Context, _ change.Partition, m checkpoint.Mark) error {
	n.w.mu.Lock()
	n.warm = "cold"
	warming := n.warming
	n.w.mu.Unlock()
	n.wait(ctx, n.latency/3) // not at the moment at which something else is answered
	n.w.pass("warm")
	if err := n.failure("warm"); err != nil {
		return err
	}
	n.wait(ctx, warming)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.warm = "warm"
	if numberOf(m.Position) > n.w.mu.mark {
		n.w.brokenLocked("warmed from %s, the mark stands at %d", m.Position, n.w.mu.mark)
	}
	return nil
}

func (n recipient) Adopt(_ change.Partition, e change.Epoch) (change.Term, error) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.dead || !n.trustedLocked() {
		return change.Term{}, errDead
	}
	return n.adoptLocked(e), nil
}

func (n recipient) Serve(_ context.Context, t change.Term, m checkpoint.Mark) error {
	n.w.pass("serve")
	if err := n.failure("serve"); err != nil {
		return err
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.dead {
		return errDead
	}
	n.beginLocked(t, numberOf(m.Position))
	return nil
}

func (n recipient) Drop(_ change.Partition, e change.Epoch) {
	w := n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.dead {
		return
	}
	w.sayLocked("%s drops what it has warmed", n.name)
	n.warm = ""
	if !n.serves {
		clear(n.sessions)
	}
	if e != (change.Epoch{}) && w.mu.owner.Epoch == e && n.reachesLocked() {
		w.sayLocked("%s gives the partition back", n.name)
		w.mu.owner, w.mu.lease = roster.Owner{}, nil
		w.writeLocked()
	}
}

// marks are those of the world, as the node reaches them.
type marks struct{ *node }

func (n marks) Load(ctx context.Context, _ change.Partition) (checkpoint.Mark, error) {
	var m checkpoint.Mark
	err := n.call(ctx, func() error {
		m = n.w.markOf(n.w.mu.mark, change.Epoch{})
		return nil
	})
	if err != nil {
		return checkpoint.Mark{}, err
	}
	return m, nil
}

func (n marks) Claim(ctx context.Context, terms []change.Term) ([]checkpoint.Mark, error) {
	var found []checkpoint.Mark
	err := n.call(ctx, func() error {
		at, err := n.fencedLocked(terms[0].Epoch)
		found = []checkpoint.Mark{n.w.markOf(at, terms[0].Epoch)}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

var errBroken = errors.New("broken")
