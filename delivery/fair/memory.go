package fair

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
	// EventBytes are the bytes of an event besides its payload.
	EventBytes = 128
	// BatchBytes are the bytes of a batch besides its events.
	BatchBytes = 512
	// resumeShare is the divisor for the parts in which a session resumes that has waited.
	resumeShare = 2
)

// Memory bounds the memory of all sessions of a Hub, in bytes: for events that are queued or sent
// and not acknowledged, and for remembered documents. The first half is first come, first served.
// The other half is divided equally among the identities with sessions, and so is each share among
// its sessions: half of it first come, first served, the rest equally. So a session within its part
// always has room, whatever the others hold, and together they never exceed the budget except for
// leastHeld and one event each.
type Memory struct {
	most     int          // 0: no bound
	held     atomic.Int64 // changed under the mutex
	sessions atomic.Int64

	mu struct {
		sync.Mutex
		shares map[string]*share // of identities with sessions
	}
}

// A share is the part of one identity. The mutex of Memory guards it.
type share struct {
	identity       string
	held, sessions int
	waiting        map[*Part]struct{} // for room
}

// NewMemory returns a Memory of so many bytes; 0 is no bound.
func NewMemory(most int) *Memory {
	m := &Memory{most: most}
	m.mu.shares = make(map[string]*share)
	return m
}

// A Part is what one session of an identity holds.
type Part struct {
	memory *Memory
	of     *share
	wake   func()
}

// Enter adds a session of an identity. wake is called when it may have room again; it must neither
// block nor call the Memory.
func (m *Memory) Enter(identity string, wake func()) *Part {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.mu.shares[identity]
	if k == nil {
		k = &share{identity: identity, waiting: make(map[*Part]struct{})}
		m.mu.shares[identity] = k
	}
	k.sessions++
	m.sessions.Add(1)
	return &Part{memory: m, of: k, wake: wake}
}

// Exit removes a session that holds nothing. The others then have a larger share.
func (p *Part) Exit() {
	m, k := p.memory, p.of
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(k.waiting, p)
	m.sessions.Add(-1)
	if k.sessions--; k.sessions == 0 {
		delete(m.mu.shares, k.identity)
	}
	m.wakeAll()
}

// Add changes the bytes that the session holds, and wakes sessions that may have room now.
func (p *Part) Add(bytes int) { p.memory.add(p.of, bytes) }

func (m *Memory) add(k *share, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := int(m.held.Add(int64(bytes)))
	k.held += bytes
	crosses := func(bound int) bool { return now < bound && now-bytes >= bound }
	switch {
	case bytes >= 0:
	case crosses(m.most), crosses(m.first(resumeShare)):
		m.wakeAll()
	default:
		k.wake()
	}
}

// first returns the bound of the first-come part. A session that waits for room gets it only up to
// a part of that.
func (m *Memory) first(divisor int) int {
	if divisor == 1 {
		return m.most / 2
	}
	return m.most * 3 / 8
}

// Tight reports whether sessions above their share have no room once n more bytes are held.
func (m *Memory) Tight(more int) bool {
	return m.most > 0 && m.Bytes()+more >= m.first(1)
}

// Continues reports whether the session, if it holds so much, may hold more. Otherwise it is woken
// after a change.
func (p *Part) Continues(held int) bool { return p.has(held, 1) }

// Resumes is Continues for a session that has waited: it needs more room than to continue.
func (p *Part) Resumes(held int) bool { return p.has(held, resumeShare) }

func (p *Part) has(held, divisor int) bool {
	m, k := p.memory, p.of
	if m.most == 0 || held < m.least() {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	share := m.most / 2 / len(m.mu.shares) / 2
	all := m.Bytes()
	switch {
	case all >= m.most: // nobody has room
	case all < m.first(divisor), k.held < share/divisor, held < share/k.sessions/divisor:
		return true
	}
	k.waiting[p] = struct{}{}
	return false
}

// least returns how much a session may always hold.
func (m *Memory) least() int {
	return min(leastHeld, m.most/64, m.most/4/max(1, int(m.sessions.Load())))
}

// Events returns how many events each of a page's readers may get with it: all readers together get
// an eighth of the budget.
func (m *Memory) Events(readers int) int {
	if m.most == 0 {
		return math.MaxInt
	}
	return max(1, m.most/8/EventBytes/max(1, readers))
}

// A Lease is memory that several share. It counts against the first of the identities that have it.
// The mutex of Memory guards it.
type Lease struct {
	bytes   int
	holders []*share // once for each batch
}

// NewLease returns a lease of n bytes.
func NewLease(bytes int) *Lease { return &Lease{bytes: bytes} }

// Take counts a lease, which may be nil, for a batch of the session.
func (p *Part) Take(l *Lease) {
	if l == nil {
		return
	}
	m := p.memory
	m.mu.Lock()
	l.holders = append(l.holders, p.of)
	first := len(l.holders) == 1
	m.mu.Unlock()
	if first {
		p.Add(l.bytes)
	}
}

// GiveBack ends that: the lease counts against the next identity that has it, if there is one.
func (p *Part) GiveBack(l *Lease) {
	if l == nil {
		return
	}
	m, k := p.memory, p.of
	m.mu.Lock()
	i := slices.Index(l.holders, k)
	if i < 0 {
		m.mu.Unlock()
		return
	}
	l.holders = slices.Delete(l.holders, i, i+1)
	var next *share
	if i == 0 && len(l.holders) > 0 {
		if next = l.holders[0]; next != k {
			next.held += l.bytes
			k.held -= l.bytes
		}
	}
	m.mu.Unlock()
	if i == 0 && next == nil {
		p.Add(-l.bytes)
	}
}

// wake wakes the sessions that wait for room. The caller holds the mutex.
func (k *share) wake() {
	for p := range k.waiting {
		p.wake()
	}
	clear(k.waiting)
}

func (m *Memory) wakeAll() {
	for _, k := range m.mu.shares {
		k.wake()
	}
}

// Spares reports whether sessions may hold more that acknowledgements do not free: a quarter of the
// budget, so that the rest stays available.
func (m *Memory) Spares() bool { return m.most == 0 || m.Bytes() < m.most/4 }

// Bytes returns what all sessions hold.
func (m *Memory) Bytes() int { return int(m.held.Load()) }
