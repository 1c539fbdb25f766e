package delivery

import (
	"context"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery/fair"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/match"
)

// Admit waits until a session of an account may begin: see fair.Accounts.Start.
func (h *Hub) Admit(ctx context.Context, account string) error { return h.accounts.Start(ctx, account) }

// charge adds the cost of a session's filters and encodings in the current reply.
func (l *loop) charge(s *stream, units int) { l.costs.Charge(s.account, &s.expense, units) }

// chargeDelivery adds the delivery of an event to a session in the current reply.
func (l *loop) chargeDelivery(s *stream, units int) {
	if _, before := l.touched[s]; !before {
		units += fair.WakeUnits
	}
	l.costs.Deliver(s.account, units)
}

// Grant implements match.Meter for the live path. A session whose filters may not be evaluated now
// leaves it before the current event.
func (l *loop) Grant(id match.ID) int {
	l.costs.asked = l.subscriptions[id]
	s := l.costs.asked.stream
	if s.account == nil || l.bound {
		l.costs.granted = match.MaxCost
		return l.costs.granted
	}
	if l.costs.granted = min(l.costs.Left(s.account), fair.CostlyUnits); l.costs.granted <= 0 {
		l.costs.refused = append(l.costs.refused, s)
	}
	return l.costs.granted
}

// Spent implements match.Meter.
func (l *loop) Spent(_ match.ID, units int, err error) {
	s := l.costs.asked.stream
	l.charge(s, units)
	switch {
	case err == nil:
	case l.costs.granted < match.MaxCost && fault.Of(err) == fault.FilterCost:
		l.costs.refused = append(l.costs.refused, s)
	default:
		l.fail(l.costs.asked, err)
	}
}

var _ match.Meter = (*loop)(nil)

// affordsForms reports whether a session may have an event encoded in all the forms of its matching
// subscriptions on the live path. One form is always affordable.
func (l *loop) affordsForms(s *stream, e *change.Event) bool {
	if len(s.groups) == 1 || l.bound {
		return true
	}
	forms := 0
	for _, sub := range s.matched {
		if sub.group.ids == nil {
			sub.group.ids = sub.ids
			forms++
		}
	}
	for _, sub := range s.matched {
		sub.group.ids = nil
	}
	return forms == 1 || forms*(1+len(e.Raw())/encodedBytes) <= l.costs.Left(s.account)
}

// relieve takes sessions off the live path while all of it costs too much: those of the account
// that spends most. at is the position of the event that they have considered last.
func (l *loop) relieve(at change.Position) {
	for l.costs.Exceeds() {
		most, reply := l.costs.Expel()
		if most == nil {
			return // they have left before
		}
		mean := reply / max(1, l.spendersOf(most))
		for _, s := range l.live {
			if spent := l.costs.SpentNow(&s.expense); s.account == most && spent > 0 && spent >= mean/2 {
				l.evict(s, at)
			}
		}
		l.costs.Expelled(most)
	}
}

// spendersOf counts the live sessions of an account that have spent anything in the current reply.
func (l *loop) spendersOf(of *fair.Account) (n int) {
	for _, s := range l.live {
		if s.account == of && l.costs.SpentNow(&s.expense) > 0 {
			n++
		}
	}
	return n
}

// evict takes a session off the live path, because its filters cost too much there. It has
// considered everything up to at, or where it began.
func (l *loop) evict(s *stream, at change.Position) {
	if _, live := l.live[s.Session]; !live {
		return
	}
	now := l.costs.Now()
	s.expense.Evicted(l.costs.Banish(s.account, now), now)
	at = change.Later(change.Later(at, s.from), s.position()).Clone()
	s.queue(at)
	delete(l.touched, s)
	l.metrics.costly.Inc()
	l.leave(s, at)
}

// disperse ends the deliveries of a reply: while they cost too much, the accounts whose deliveries
// cost most leave the live path. All live sessions have considered everything up to at.
func (l *loop) disperse(at change.Position) {
	if !l.costs.EndDeliveries() {
		return
	}
	live := make(map[*fair.Account]struct{})
	for _, s := range l.live {
		if s.account != nil {
			live[s.account] = struct{}{}
		}
	}
	for _, leaves := range l.costs.Disperse(live) {
		for _, s := range l.live {
			if s.account == leaves.Account {
				s.expense.LeftLive(leaves.Until)
				l.metrics.crowding.Inc()
				l.leave(s, change.Later(at, s.from).Clone())
			}
		}
	}
}

// evaluates reports whether a subscription of the session has more than comparisons that cost
// little.
func (s *stream) evaluates() bool {
	for _, sub := range s.byKey {
		if !sub.Program.IsDecided() {
			return true
		}
	}
	return false
}

// isAway reports whether the session must stay off the live path, because it cost too much there.
func (s *stream) isAway(now time.Time) bool { return s.awayFor(now) > 0 }

// awayFor returns for how long that is, if it spends nothing more.
func (s *stream) awayFor(now time.Time) time.Duration {
	if s.account == nil {
		return 0
	}
	return s.expense.AwayFor(now)
}

// suspend ends a session because one of its filters keeps costing too much, after a notice. Nothing
// is lost: the session ends where it is. The same filter is refused for a while.
func (h *Hub) suspend(sub *Subscription) {
	s := sub.session
	now := time.Now()
	h.accounts.Suspend(s.account, sub.Program.Filter().Key(), now)
	h.metrics.suspended.Inc()
	cause := fault.Newf(fault.SessionFilterCostly, "the filter of subscription %q costs too much: it is suspended for %s", sub.ID, fair.Suspension)
	s.mu.Lock()
	s.mu.notices = append(s.mu.notices, Notice{ // however many there are
		Kind: "filter_suspended", Text: cause.Err.Error(), Subscription: sub.ID, Code: cause.Code, At: now,
	})
	s.mu.Unlock()
	h.cfg.Logger.Warn("filter suspended", "code", cause.Code, "account", s.account.Name, "subscriber", s.cfg.Subscriber, "subscription", sub.ID)
	s.Close(cause)
}

// Compile compiles a filter for an identity, like match.Compile, for a namespace that
// CheckNamespace accepts; missing is the text of that check. Equal filters share a program. An
// identity compiles one filter at a time, and all of them together use half of the cores at most,
// so Compile may block; it returns the context's cause if that ends first. A filter that was
// recently suspended for the identity is refused with the fault SessionFilterCostly. It looks up
// namespaces that are not among the names.
func (h *Hub) Compile(ctx context.Context, account string, f match.Filter, names Names) (p *match.Program, missing string, err error) {
	if missing, err = h.CheckNamespace(ctx, change.Namespace{DB: f.DB, Coll: f.Coll}, names); err != nil {
		return nil, "", err
	}
	p, err = h.compile(ctx, account, f)
	return p, missing, err
}

func (h *Hub) compile(ctx context.Context, account string, f match.Filter) (*match.Program, error) {
	of := h.accounts.Enter(account)
	if of == nil {
		return h.compiler.Compile(f)
	}
	defer h.accounts.Exit(of)
	if err := h.accounts.Refusal(of, f.Key()); err != nil {
		return nil, err
	}
	if p, ok := h.compiler.Known(f); ok {
		return p, nil
	}
	if !h.accounts.Acquire(of, nil, ctx.Done()) {
		return nil, context.Cause(ctx)
	}
	begun := time.Now()
	defer func() { h.accounts.ReleaseAfter(of, time.Since(begun)) }()
	return h.compiler.Compile(f)
}
