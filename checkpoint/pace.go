package checkpoint

import (
	"sync"
	"time"
)

const (
	// usualRow is how many bytes of a checkpoint that its client makes longer cost nothing: the
	// number of an identity's checkpoints is bounded, so such ones are, too.
	usualRow = 512
	// paceBurst is for how long an identity may save its bytes per second in advance.
	paceBurst = 2 * time.Minute
	// maxPaced bounds the identities that are remembered.
	maxPaced = 10_000
)

// A pace bounds the cost of each identity's large checkpoints for the store, in bytes a second. An
// identity whose checkpoints cost more waits for its own debt; others do not wait. The zero
// identity is that of a node without access control, and of operators: it has no limit.
type pace struct {
	rate int64 // bytes a second; 0 means no limit

	mu struct {
		sync.Mutex
		paid map[string]time.Time // when each identity's debt for its saves is paid
	}
}

// Large returns how many bytes of the stored checkpoint its client is responsible for, beyond the
// usual size: snapshots in progress, long tokens, positions of partitions, and losses.
func (c Checkpoint) Large() int {
	size := len(c.Position.Token)
	for _, at := range c.Positions {
		size += 40 + len(at.Token)
	}
	size = size * 4 / 3
	for _, p := range c.Snapshots {
		size += sizeOf(p, func(s string) int { return len(s) }) // about: it is asked often
	}
	for _, g := range c.Losses {
		size += 160 + len(g.By)
		for _, name := range g.Namespaces {
			size += len(name)
		}
	}
	return max(0, size-usualRow)
}

// debt returns for how long an identity has to wait until it may save another large checkpoint.
func (p *pace) debt(identity string, now time.Time) time.Duration {
	if p.rate == 0 || identity == "" {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, max(0, p.mu.paid[identity].Sub(now))-paceBurst)
}

// tight reports whether some identity is in debt, or soon may be.
func (p *pace) tight(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, paid := range p.mu.paid {
		if paid.Sub(now) > paceBurst/2 {
			return true
		}
	}
	return false
}

// charge has an identity pay for bytes.
func (p *pace) charge(identity string, bytes int, now time.Time) {
	if p.rate == 0 || identity == "" || bytes == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, paid := range p.mu.paid {
		if len(p.mu.paid) < maxPaced {
			break
		}
		if !paid.After(now) { // as if it had never saved anything
			delete(p.mu.paid, other)
		}
	}
	if p.mu.paid == nil {
		p.mu.paid = make(map[string]time.Time)
	}
	from := p.mu.paid[identity]
	if from.Before(now) {
		from = now
	}
	p.mu.paid[identity] = from.Add(time.Duration(bytes) * time.Second / time.Duration(p.rate))
}

// Pay charges the identity of a subscriber for its large checkpoint, which is written at once
// because its client asks for it. It returns how long the identity has to wait instead, without a
// charge, if it has not paid for earlier ones.
func (w *Writer) Pay(c Checkpoint) (wait time.Duration) {
	large := c.Large()
	now := time.Now()
	if large == 0 {
		return 0
	}
	if wait = w.pace.debt(c.Claim.By, now); wait == 0 {
		w.pace.charge(c.Claim.By, large, now)
	}
	return wait
}
