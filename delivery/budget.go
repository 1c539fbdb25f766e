package delivery

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// leastHeld is how much a session may always hold, so that each makes progress. It is less if
	// the budget is small, or if all sessions together would take more than a quarter of it.
	leastHeld = 64 << 10
	// eventOverhead and batchOverhead are the bytes of an event and of a batch besides its payload.
	eventOverhead, batchOverhead = 128, 512
)

// A budget bounds the memory of all sessions of a Hub, in bytes: for events that are queued or sent
// and not acknowledged, and for remembered documents. The first half is first come, first served.
// The other half is divided equally among the identities with sessions, and so is each share among
// its sessions: half of it first come, first served, the rest equally. So a session within its part
// always has room, whatever the others hold, and together they never exceed the budget except for
// leastHeld and one event each.
type budget struct {
	most     int          // 0: no bound
	held     atomic.Int64 // changed under the mutex
	sessions atomic.Int64

	mu struct {
		sync.Mutex
		stakes map[string]*stake // of identities with sessions
	}
}

// A stake is the part of one identity. The budget's mutex guards it.
type stake struct {
	identity       string
	held, sessions int
	waiting        map[*Session]struct{} // for room
}

func newBudget(most int) *budget {
	b := &budget{most: most}
	b.mu.stakes = make(map[string]*stake)
	return b
}

// enter adds a session of an identity.
func (b *budget) enter(identity string) *stake {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.mu.stakes[identity]
	if k == nil {
		k = &stake{identity: identity, waiting: make(map[*Session]struct{})}
		b.mu.stakes[identity] = k
	}
	k.sessions++
	b.sessions.Add(1)
	return k
}

// exit removes a session that holds nothing. The others then have a larger share.
func (b *budget) exit(s *Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(s.stake.waiting, s)
	b.sessions.Add(-1)
	if s.stake.sessions--; s.stake.sessions == 0 {
		delete(b.mu.stakes, s.stake.identity)
	}
	b.wakeAll()
}

// add changes the bytes that a session holds, and wakes sessions that may have room now.
func (b *budget) add(k *stake, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := int(b.held.Add(int64(bytes)))
	k.held += bytes
	crosses := func(bound int) bool { return now < bound && now-bytes >= bound }
	switch {
	case bytes >= 0:
	case crosses(b.most), crosses(b.first(room)):
		b.wakeAll()
	default:
		k.wake()
	}
}

// first returns the bound of the first-come part. A session that waits for room gets it only up to
// a part of that.
func (b *budget) first(divisor int) int {
	if divisor == 1 {
		return b.most / 2
	}
	return b.most * 3 / 8
}

// tight reports whether sessions above their share have no room once n more bytes are held.
func (b *budget) tight(more int) bool {
	return b.most > 0 && b.bytes()+more >= b.first(1)
}

// has reports whether a session that holds n bytes may hold more: with divisor 1 whether it may
// continue, with room whether it may begin again. A session that may not is woken after a change.
// The caller holds the session's mutex.
func (b *budget) has(s *Session, held, divisor int) bool {
	if b.most == 0 || held < b.least() || s.mu.released {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	share := b.most / 2 / len(b.mu.stakes) / 2
	all := b.bytes()
	if all < b.most && (all < b.first(divisor) || s.stake.held < share/divisor || held < share/s.stake.sessions/divisor) {
		return true
	}
	s.stake.waiting[s] = struct{}{}
	return false
}

// least returns how much a session may always hold.
func (b *budget) least() int {
	return min(leastHeld, b.most/64, b.most/4/max(1, int(b.sessions.Load())))
}

// events returns how many events each of a page's readers may get with it: all readers together get
// an eighth of the budget.
func (b *budget) events(readers int) int {
	if b.most == 0 {
		return math.MaxInt
	}
	return max(1, b.most/8/eventOverhead/max(1, readers))
}

// A lease is memory that several share. It counts against the first of the identities that have it.
// The budget's mutex guards it.
type lease struct {
	bytes   int
	holders []*stake // once for each batch
}

// lease returns a new lease of n bytes.
func (b *budget) lease(bytes int) *lease { return &lease{bytes: bytes} }

// take counts a lease for a batch of an identity.
func (b *budget) take(l *lease, k *stake) {
	if l == nil {
		return
	}
	b.mu.Lock()
	l.holders = append(l.holders, k)
	first := len(l.holders) == 1
	b.mu.Unlock()
	if first {
		b.add(k, l.bytes)
	}
}

// giveBack ends that: the lease counts against the next identity that has it, if there is one.
func (b *budget) giveBack(l *lease, k *stake) {
	if l == nil {
		return
	}
	b.mu.Lock()
	i := slices.Index(l.holders, k)
	if i < 0 {
		b.mu.Unlock()
		return
	}
	l.holders = slices.Delete(l.holders, i, i+1)
	var next *stake
	if i == 0 && len(l.holders) > 0 {
		if next = l.holders[0]; next != k {
			next.held += l.bytes
			k.held -= l.bytes
		}
	}
	b.mu.Unlock()
	if i == 0 && next == nil {
		b.add(k, -l.bytes)
	}
}

// lend counts a lease for a batch of the session. The caller holds the mutex.
func (s *Session) lend(l *lease) {
	if !s.mu.released {
		s.hub.budget.take(l, s.stake)
	}
}

// wake wakes the sessions that wait for room. The caller holds the mutex.
func (k *stake) wake() {
	for s := range k.waiting {
		notify(s.stirred)
		s.hub.rooms.change(s)
	}
	clear(k.waiting)
}

func (b *budget) wakeAll() {
	for _, k := range b.mu.stakes {
		k.wake()
	}
}

// spares reports whether sessions may hold more that acknowledgements do not free: a quarter of the
// budget, so that the rest stays available.
func (b *budget) spares() bool { return b.most == 0 || b.bytes() < b.most/4 }

// bytes returns what all sessions hold.
func (b *budget) bytes() int { return int(b.held.Load()) }

// memory returns the bytes that a batch takes.
func (b *Batch) memory() int {
	return batchOverhead + cap(b.payloads) + cap(b.Events)*eventOverhead + 4*len(b.Attached)
}

// hold changes the bytes that the session holds. The caller holds the session's mutex.
func (s *Session) hold(bytes int) {
	if s.mu.released {
		return
	}
	s.mu.held += bytes
	s.hub.budget.add(s.stake, bytes)
}

// release frees the bytes of an ended session.
func (s *Session) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(-s.mu.held)
	for i := range s.mu.sent {
		s.hub.budget.giveBack(s.mu.sent[i].lease, s.stake)
		s.mu.sent[i].lease = nil
	}
	s.mu.released = true
	s.hub.budget.exit(s)
}

// opened returns the bytes of the open batch, which are not counted yet.
func (s *stream) opened() int {
	if s.open == nil {
		return 0
	}
	return s.open.memory() - s.open.charged
}

// affords reports whether the budget allows the session more than it holds and the open batch.
func (s *stream) affords() bool {
	opened := s.opened()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hub.budget.has(s.Session, s.mu.held+opened, 1)
}
