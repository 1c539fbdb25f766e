package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

// requests bounds the requests under way at a time: one of each kind.
const requests = 5

// An attachment is a node's membership for the life of one lease. Its fields belong to the loop of
// run. Requests run concurrently and return functions that process their replies in the loop.
type attachment struct {
	*Member

	membership cluster.Membership
	deadline   leaseDeadline
	end        context.CancelCauseFunc // of all terms
	terms      *termSet
	asking     sync.WaitGroup
	answers    chan func() error

	renewing, beating, viewing, claiming, giving bool

	failure  error // of the last renewal
	left     error // why a single node must join again: its membership has expired while the store did not answer
	streak   int
	failing  bool                               // claims fail
	claimed  time.Duration                      // when the last claim ended
	beaten   time.Duration                      // when the last heartbeat was sent
	beatAt   time.Duration                      // when the next one is due
	viewAt   time.Duration                      // when the next view is due
	unseen   int                                // views that have failed in a row
	toldView time.Duration                      // when that was last logged, 0 for never
	blocked  map[change.Partition]time.Duration // wanted and owned by others, since when
	stopping bool
}

// run keeps the membership alive, and the terms as the plan wants them, until done is closed. As
// soon as the membership is lost, or may be, it returns the reason. It has then canceled the
// requests under way, which may take a little longer to end.
func (a *attachment) run(ctx context.Context, stopping, done <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hints := a.store.Hints(ctx)
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		now := a.cfg.Clock()
		if a.deadline.Over(now) {
			return notRenewed(a.failure)
		}
		if err := a.Sees(); unanswered(err) {
			return err
		}
		if a.left != nil && a.stopping && !a.renewing {
			return a.left
		}
		if a.cfg.Alone && (a.failure != nil || a.left != nil) {
			a.deadline = a.deadline.Unanswered(now)
			a.terms.Rely(a.deadline)
		}
		a.ask(ctx, now)
		pause := a.pause(now)
		look.Reset(pause)
		a.turning.RestFor(pause)
		select {
		case <-done:
			return nil
		case <-stopping:
			stopping, a.stopping, a.beatAt = nil, true, 0
		case _, open := <-hints:
			a.viewAt = 0
			if !open {
				hints = nil
			}
		case <-a.terms.Ended:
			a.viewAt = 0
			a.tellSoon()
		case <-a.cfg.News:
			a.tellSoon()
		case <-look.C:
		case answer := <-a.answers:
			if a.deadline.Over(a.cfg.Clock()) {
				return notRenewed(a.failure) // before the loop processes it
			}
			if err := answer(); err != nil {
				return err
			}
		}
		a.turning.Work()
	}
}

// ask sends the requests that are due.
func (a *attachment) ask(ctx context.Context, now time.Duration) {
	switch {
	case a.renewing || now < a.deadline.Due:
	case a.left != nil:
		a.request(ctx, &a.renewing, a.deadline.TTL/2, a.joinAgain) // leaves time to renew it
	default:
		a.request(ctx, &a.renewing, renewEvery(a.deadline.TTL), a.renew)
	}
	if !a.beating && now >= a.beatAt {
		a.beaten = now
		a.beatAt = now + a.cfg.HeartbeatInterval
		stopping := a.stopping
		a.request(ctx, &a.beating, a.cfg.HeartbeatInterval, func(ctx context.Context) func() error { return a.beat(ctx, stopping) })
	}
	if !a.viewing && now >= a.viewAt {
		a.viewAt = now + viewEvery
		a.request(ctx, &a.viewing, viewEvery, func(asking context.Context) func() error { return a.view(ctx, asking) })
	}
}

// tellSoon makes the next heartbeat due soon, because the set of served partitions has changed, or
// the node's problems have.
func (a *attachment) tellSoon() {
	a.beatAt = min(a.beatAt, a.beaten+TellsWithin)
}

// pause returns the time until something is due.
func (a *attachment) pause(now time.Duration) time.Duration {
	pause := a.deadline.Pause(now, a.renewing)
	if !a.beating {
		pause = min(pause, a.beatAt-now)
	}
	if !a.viewing {
		pause = min(pause, a.viewAt-now)
	}
	return max(pause, 0)
}

// request runs f concurrently with the loop, with a timeout; the loop then runs the function that f
// returns.
func (a *attachment) request(ctx context.Context, busy *bool, within time.Duration, f func(context.Context) func() error) {
	*busy = true
	ctx, cancel := context.WithTimeout(ctx, within)
	a.asking.Go(func() {
		defer cancel()
		answer := f(ctx)
		a.answers <- func() error {
			*busy = false
			return answer()
		}
	})
}

// renew extends the lease.
func (a *attachment) renew(ctx context.Context) func() error {
	sent := a.cfg.Clock()
	ttl, err := a.membership.Renew(ctx)
	return func() error {
		// A request that has waited may be answered after the claim has run out.
		if left, now := onlyLeft(err), a.cfg.Clock(); left != nil && a.cfg.Alone && a.deadline.RanOut(now) {
			a.left = left
			a.deadline.Due = now
			return nil
		}
		return a.answered(sent, ttl, err)
	}
}

// joinAgain replaces a membership that has expired because the store did not answer. The terms last
// until the next view, which shows the new epochs of their partitions.
func (a *attachment) joinAgain(ctx context.Context) func() error {
	sent := a.cfg.Clock()
	_, err := a.tryJoin(ctx)
	return func() error { return a.answered(sent, a.cfg.TTL, err) }
}

// answered processes the reply to a renewal.
func (a *attachment) answered(sent, ttl time.Duration, err error) error {
	if left := onlyLeft(err); left != nil {
		return left
	}
	a.logTurn(sent, err)
	if a.failure = err; err != nil {
		a.deadline = a.deadline.Failed(a.cfg.Clock())
		return nil
	}
	if a.left != nil {
		a.cfg.Log.Info("claimed the partitions anew: the claim had run out unanswered")
	}
	a.deadline = granted(sent, ttl)
	a.left = nil
	a.terms.Rely(a.deadline)
	a.rely(a.deadline)
	return nil
}

// logTurn counts failed renewals, and logs the first failure and the recovery.
func (a *attachment) logTurn(sent time.Duration, err error) {
	a.renewed.Store(err == nil)
	switch {
	case err != nil:
		a.unansweredSince(sent, err)
		if a.streak++; a.streak == 1 {
			a.cfg.Log.Warn("the lease cannot be renewed", "error", err)
		}
		a.metrics.failures.Inc()
	case a.streak > 0:
		a.cfg.Log.Info("the lease is renewed again", "failures", a.streak)
		a.streak = 0
	}
	a.endOutage()
	a.metrics.streak.Set(float64(a.streak))
}

// endOutage ends the outage if the store has answered both kinds of requests.
func (a *attachment) endOutage() {
	if a.renewed.Load() && a.blind.Load() == nil {
		a.outage.Store(nil)
	}
}

// beat sends a heartbeat.
func (a *attachment) beat(ctx context.Context, stopping bool) func() error {
	h := a.report()
	if stopping {
		h.Status = cluster.StatusStopping
	}
	served := make(map[change.Partition]bool, len(h.Held))
	for _, held := range h.Held {
		served[held.Partition] = true
	}
	for _, term := range a.terms.Held() {
		if !served[term.Partition] {
			h.Held = append(h.Held, cluster.HeldPartition{Partition: term.Partition, Epoch: term.Epoch, State: string(cluster.StatusStarting)})
		}
	}
	err := a.membership.Beat(ctx, h)
	return func() error { return onlyLeft(err) } // a lost heartbeat is followed by the next one
}

// onlyLeft returns err if it reports the end of the membership, or of a single node's claim.
func onlyLeft(err error) error {
	if errors.Is(err, cluster.ErrLeft) || errors.Is(err, cluster.ErrLost) {
		return err
	}
	return nil
}

// view reads the cluster, and then acts on the plan: with ctx, because the context asking has ended
// by then.
func (a *attachment) view(ctx, asking context.Context) func() error {
	asked := a.cfg.Clock()
	view, err := a.store.View(asking)
	return func() error {
		a.logView(asked, err)
		if err != nil {
			return onlyLeft(err)
		}
		a.cfg.Viewed(view)
		now := a.cfg.Clock()
		claiming := a.claiming || a.claimed > asked
		d := a.terms.Reconcile(view, a.cfg.Member.Node, a.cfg.Member.Process, asked, now, now+viewEvery, claiming)
		if d.Ended > 0 {
			a.cfg.Log.Info("terms ended: their partitions were taken", "partitions", d.Ended)
		}
		if len(d.Return) > 0 && !a.giving {
			a.request(ctx, &a.giving, viewEvery, func(ctx context.Context) func() error { return a.returnKeys(ctx, d.Return) })
		}
		if len(d.Offer) > 0 {
			a.cfg.Log.Info("terms are given up for other nodes", "partitions", len(d.Offer), "plan", view.Plan.Version)
			a.cfg.Offer(d.Offer)
		}
		if a.stopping {
			return nil
		}
		if len(d.Claim) > 0 && !a.claiming && a.left == nil {
			a.request(ctx, &a.claiming, trustedFor(a.deadline.TTL), func(ctx context.Context) func() error { return a.claim(ctx, d.Claim) })
		}
		a.viewAt = min(a.viewAt, d.Next)
		a.wait(d.Blocked, now)
		return nil
	}
}

// Failed views are logged after this many in a row, and then at this interval.
const (
	viewFailures = 3
	viewTold     = time.Minute
)

// unanswered reports whether a view failed because the store did not answer. A node that cannot
// read the cluster for as long as a lease is trusted is detached, because it would not learn that
// its partitions have a new owner. A corrupt store is different: it is corrupt for all nodes, so
// none leads, and no partition gets a new owner.
func unanswered(err error) bool { return err != nil && fault.Of(err) != fault.ClusterCorrupt }

// logView counts failed views, and logs failures and the recovery.
func (a *attachment) logView(asked time.Duration, err error) {
	if err == nil {
		if a.toldView > 0 {
			a.cfg.Log.Info("the cluster is read again", "failures", a.unseen)
		}
		a.unseen, a.toldView = 0, 0
		a.seen()
		a.endOutage()
		return
	}
	a.unseen++
	a.blind.Store(&err)
	if onlyLeft(err) == nil && fault.Of(err) != fault.ClusterReplaced {
		a.unansweredSince(asked, err)
	}
	a.metrics.unseen.Inc()
	now := a.cfg.Clock()
	if a.unseen >= viewFailures && (a.toldView == 0 || now-a.toldView >= viewTold) {
		a.toldView = now
		a.cfg.Log.Warn("the cluster cannot be read: this node learns of no plan", "failures", a.unseen, "since", a.viewAge(), "error", err)
	}
}

// wait schedules early views while other nodes still own wanted partitions, within the retry
// window.
func (a *attachment) wait(blocked []change.Partition, now time.Duration) {
	waiting, exhausted := false, 0
	since := make(map[change.Partition]time.Duration, len(blocked))
	for _, p := range blocked {
		first, known := a.blocked[p]
		if !known {
			first = now
		}
		since[p] = first
		switch {
		case first < 0: // logged before
		case now-first < a.cfg.RetryWindow:
			waiting = true
		default:
			since[p] = -1
			exhausted++
		}
	}
	a.blocked = since
	if waiting {
		a.metrics.attempts.Inc()
		a.viewAt = min(a.viewAt, now+claimRetry)
	}
	if exhausted > 0 {
		a.metrics.exhausted.Inc()
		a.cfg.Log.Warn("partitions that the plan gives to this node are still owned by others: waiting for them to be given up",
			"partitions", exhausted, "after", a.cfg.RetryWindow)
	}
}

// claim claims partitions and passes their terms on.
func (a *attachment) claim(ctx context.Context, partitions []change.Partition) func() error {
	asked := time.Now()
	owners, err := a.membership.Claim(ctx, partitions)
	if err == nil {
		serving := a.traceHandoffs(ctx, partitions, owners, asked)
		err = a.begin(ctx, partitions, owners)
		serving(err)
	}
	return func() error {
		a.claimed = a.cfg.Clock()
		a.viewAt = min(a.viewAt, a.claimed+claimRetry) // others may have claimed some meanwhile
		if _, isHeld := errors.AsType[*cluster.HeldError](err); isHeld {
			return err
		}
		switch left := onlyLeft(err); {
		case left == nil:
		case !a.cfg.Alone || !a.deadline.RanOut(a.claimed):
			return left
		case a.left == nil:
			a.deadline.Due = a.claimed // a renewal shows whether it has expired
		}
		if err != nil && a.cfg.Alone {
			a.terms.Postpone(partitions, a.claimed+reclaimPause)
		}
		if err != nil && !a.failing {
			a.cfg.Log.Warn("partitions cannot be claimed yet", "error", err)
		}
		a.failing = err != nil
		a.tellSoon()
		return nil
	}
}

// begin passes on the terms of claimed partitions.
func (a *attachment) begin(ctx context.Context, partitions []change.Partition, owners []cluster.Owner) error {
	var mine []change.Partition
	var epochs []change.Epoch
	for i, owner := range owners {
		if owner.Process == a.cfg.Member.Process {
			mine, epochs = append(mine, partitions[i]), append(epochs, owner.Epoch)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	attempts := resumeAttempts
	resumed, err := a.resume(ctx, a.terms.Begin(mine, epochs, a.cfg.Clock()), &attempts)
	if resumed > 0 {
		a.metrics.claimed.Add(float64(resumed))
		a.cfg.Log.Info("partitions claimed", "partitions", resumed)
	}
	if err != nil {
		return fmt.Errorf("resume partitions: %w", err)
	}
	return nil
}

// resumeAttempts bounds the calls of Resume for one claim: enough to find a few bad terms among
// very many.
const resumeAttempts = 64

// resume passes terms on, and returns those that are refused: a term that cannot be served, because
// its checkpoint is unreadable, must not block the others. It returns the number of accepted terms.
func (a *attachment) resume(ctx context.Context, terms []change.Term, attempts *int) (resumed int, err error) {
	*attempts--
	if err = a.cfg.Resume(ctx, terms); err == nil {
		a.terms.Serve(terms)
		return len(terms), nil
	}
	if len(terms) == 1 || *attempts < 2 || ctx.Err() != nil {
		for _, term := range terms {
			a.terms.Return(term)
		}
		return 0, err
	}
	first, errFirst := a.resume(ctx, terms[:len(terms)/2], attempts)
	second, errSecond := a.resume(ctx, terms[len(terms)/2:], attempts)
	return first + second, cmp.Or(errFirst, errSecond)
}

// returnKeys returns the keys of terms that the node has stopped serving.
func (a *attachment) returnKeys(ctx context.Context, terms []change.Term) func() error {
	partitions, epochs := make([]change.Partition, len(terms)), make([]change.Epoch, len(terms))
	for i, term := range terms {
		partitions[i], epochs[i] = term.Partition, term.Epoch
	}
	err := a.membership.Return(ctx, partitions, epochs)
	return func() error {
		if err == nil {
			a.viewAt = 0 // the plan may assign them to this node again
			a.terms.Returned(terms)
			a.metrics.released.Add(float64(len(terms)))
		}
		return onlyLeft(err)
	}
}
