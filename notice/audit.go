package notice

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds of an Auditor's writes within a minute, so that clients cannot attack the log and etcd by
// connecting.
const (
	auditMinute   = time.Minute
	auditHour     = time.Hour
	maxAuditKeys  = 1000 // addresses and identities that are counted singly
	maxIdentities = 100  // names in metrics
)

// AuditConfig configures an Auditor.
type AuditConfig struct {
	// PerMinute bounds the records of refused logins, of accepted logins and of sessions, each,
	// within a minute; PerIdentity those of the sessions of one identity. Default to 60 and 20.
	PerMinute, PerIdentity int
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
}

// An Auditor records connections in the audit log: the channel Audit of a board. It only counts
// those that come too often. A nil Auditor writes nothing.
type Auditor struct {
	cfg     AuditConfig
	board   *Board
	metrics auditMetrics

	mu struct {
		sync.Mutex
		written  map[string]int   // in this minute, by kind of record, and of sessions by identity
		refused  map[login]*count // in this minute
		accepted map[login]*count // in the hour since the first
		omitted  int              // in this minute
		named    map[string]bool  // identities with a label of their own
	}
}

// A login is one kind of accepted or refused connection.
type login struct{ transport, address, identity, reason string }

// A count is of those that were not written singly.
type count struct {
	n     int
	since time.Time
}

// NewAuditor returns an Auditor. Run must run.
func NewAuditor(cfg AuditConfig, board *Board) *Auditor {
	cfg.PerMinute, cfg.PerIdentity = cmp.Or(cfg.PerMinute, 60), cmp.Or(cfg.PerIdentity, 20)
	a := &Auditor{cfg: cfg, board: board, metrics: newAuditMetrics(cfg.Registerer)}
	a.mu.written, a.mu.refused, a.mu.accepted = make(map[string]int), make(map[login]*count), make(map[login]*count)
	a.mu.named = make(map[string]bool)
	return a
}

// Run writes the counts, every minute and when the context ends.
func (a *Auditor) Run(ctx context.Context) {
	tick := time.NewTicker(auditMinute)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		a.flush(time.Now(), ctx.Err() != nil)
	}
}

// Refused records that a client at an address (without a port) was refused. There must be few
// reasons, because they are labels of a metric.
func (a *Auditor) Refused(transport, address, reason string) {
	if a == nil {
		return
	}
	a.metrics.logins.WithLabelValues(transport, reason).Inc()
	a.mu.Lock()
	defer a.mu.Unlock()
	l := login{transport: transport, address: address, reason: reason}
	if a.countLocked(a.mu.refused, l) {
		a.postLocked("refused", a.cfg.PerMinute, refusedNotice(l, 1))
	}
}

// Accepted records that an identity was let in from an address (without a port).
func (a *Auditor) Accepted(transport, address, identity string) {
	if a == nil {
		return
	}
	a.metrics.logins.WithLabelValues(transport, "accepted").Inc()
	a.mu.Lock()
	defer a.mu.Unlock()
	l := login{transport: transport, address: address, identity: identity}
	if a.countLocked(a.mu.accepted, l) {
		a.postLocked("accepted", a.cfg.PerMinute, acceptedNotice(l, 1))
	}
}

// countLocked counts a login, and reports whether it is the first.
func (a *Auditor) countLocked(all map[login]*count, l login) (first bool) {
	switch c := all[l]; {
	case c != nil:
		c.n++
		return false
	case len(all) >= maxAuditKeys:
		a.mu.omitted++
		return false
	}
	all[l] = &count{since: time.Now()}
	return true
}

// Session records that a subscriber has connected from an address. ended records its end, and must
// be called once.
func (a *Auditor) Session(transport, address, identity, subscriber string) (ended func(why string)) {
	if a == nil {
		return func(string) {}
	}
	begun := time.Now()
	by := "identity " + identity
	label := a.label(identity)
	a.metrics.sessions.WithLabelValues(label).Inc()
	a.metrics.began.WithLabelValues(label).Inc()
	post := func(n Notice) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.mu.written[by]++; a.mu.written[by] > a.cfg.PerIdentity {
			a.mu.omitted++
			return
		}
		a.postLocked("session", a.cfg.PerMinute, n)
	}
	post(Notice{
		Channel: Audit, Kind: KindSessionBegan, Level: Info, Text: fmt.Sprintf("%q has connected from %s over %s as subscriber %q.", identity, address, transport, subscriber),
		Fields: map[string]any{"identity": identity, "address": address, "transport": transport, "subscriber": subscriber},
	})
	return func(why string) {
		a.metrics.sessions.WithLabelValues(label).Dec()
		lasted := time.Since(begun).Seconds()
		post(Notice{
			Channel: Audit, Kind: KindSessionEnded, Level: Info, Text: fmt.Sprintf("The session of %q from %s over %s has ended: %s.", identity, address, transport, why),
			Fields: map[string]any{
				"identity": identity, "address": address, "transport": transport, "subscriber": subscriber, "why": why, "lasted_seconds": lasted,
			},
		})
	}
}

// OtherIdentities is the label of identities that have none of their own.
const OtherIdentities = "other"

// label returns the label of an identity in metrics: the first ones have their own.
func (a *Auditor) label(identity string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.named[identity] && len(a.mu.named) >= maxIdentities {
		return OtherIdentities
	}
	a.mu.named[identity] = true
	return identity
}

// postLocked posts a record unless there were too many of its kind within this minute.
func (a *Auditor) postLocked(kind string, most int, n Notice) {
	if a.mu.written[kind]++; a.mu.written[kind] > most {
		a.mu.omitted++
		return
	}
	a.board.Post(n)
}

// flush ends a minute: it writes the counts of that minute, and of past hours, within the bounds of
// the next one. At the end it writes all.
func (a *Auditor) flush(now time.Time, end bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	omitted := a.mu.omitted
	a.mu.omitted = 0
	clear(a.mu.written)
	for l, c := range a.mu.refused {
		if c.n > 0 {
			a.postLocked("refused", a.cfg.PerMinute/2, refusedNotice(l, c.n)) // the other half is for new ones
		}
		delete(a.mu.refused, l)
	}
	for l, c := range a.mu.accepted {
		if !end && now.Sub(c.since) < auditHour {
			continue
		}
		if c.n > 0 {
			a.postLocked("accepted", a.cfg.PerMinute/2, acceptedNotice(l, c.n))
		}
		delete(a.mu.accepted, l)
	}
	if omitted > 0 {
		a.metrics.omitted.Add(float64(omitted))
		a.board.Post(Notice{
			Channel: Audit, Kind: KindAuditOmitted, Level: Warning, Text: fmt.Sprintf("%d more logins or sessions within a minute were not written.", omitted),
			Fields: map[string]any{"count": omitted},
		})
	}
}

// times writes how often something happened.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func refusedNotice(l login, n int) Notice {
	return Notice{
		Channel: Audit, Kind: KindLoginRefused, Level: Warning, Text: fmt.Sprintf("A client at %s was refused over %s, %s: %s.", l.address, l.transport, times(n), l.reason),
		Fields: map[string]any{"address": l.address, "transport": l.transport, "reason": l.reason, "count": n},
	}
}

func acceptedNotice(l login, n int) Notice {
	return Notice{
		Channel: Audit, Kind: KindLoginAccepted, Level: Info, Text: fmt.Sprintf("%q was let in from %s over %s, %s.", l.identity, l.address, l.transport, times(n)),
		Fields: map[string]any{"identity": l.identity, "address": l.address, "transport": l.transport, "count": n},
	}
}
