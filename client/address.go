package client

import (
	"context"
	"maps"
	"slices"
)

// A ring is a list of addresses that are tried in turn, without end.
type ring struct {
	addresses []string
	turn      int
}

// next implements addresses.
func (r *ring) next(ctx context.Context) (string, bool) {
	r.turn++
	return r.addresses[(r.turn-1)%len(r.addresses)], ctx.Err() == nil
}

// others implements addresses.
func (r *ring) others() bool { return len(r.addresses) > 1 }

// over implements addresses.
func (r *ring) over() {}

// A search finds a first node. It runs again whenever no session is left and none is being opened.
type search struct{ fleet *fleet }

// next implements addresses.
func (s search) next(ctx context.Context) (string, bool) {
	f := s.fleet
	for ctx.Err() == nil {
		f.mu.Lock()
		if len(f.mu.nodes) == 0 && len(f.mu.trying) == 0 {
			all := f.all()
			address := all[f.mu.turn%len(all)]
			f.mu.turn++
			f.mu.version = 0 // the node found has a newer topology
			f.mu.Unlock()
			return address, true
		}
		f.mu.Unlock()
		select {
		case <-f.freed:
		case <-ctx.Done():
		}
	}
	return "", false
}

// others implements addresses.
func (s search) others() bool {
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	return len(s.fleet.all()) > 1
}

// over implements addresses.
func (search) over() {}

// all returns the configured addresses and those of the last known nodes. The caller holds the
// mutex.
func (f *fleet) all() []string {
	all := slices.Clone(f.cfg.addresses)
	for _, address := range slices.Sorted(maps.Values(f.mu.addresses)) {
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return all
}

// A link keeps one session with a node while the node owns partitions and another session is up.
type link struct {
	fleet *fleet
	node  string
	first bool
}

// next implements addresses.
func (l *link) next(ctx context.Context) (string, bool) {
	f := l.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.resting, l.node)
	if !l.first && !f.misses(l.node) || ctx.Err() != nil {
		if l.first {
			delete(f.mu.trying, l.node)
		}
		return "", false
	}
	l.first = false
	f.mu.trying[l.node] = struct{}{}
	return f.mu.addresses[l.node], true
}

// others implements addresses.
func (l *link) others() bool { return false }

// over implements addresses. The link does not end: it retries after a backoff, or finds that it is
// no longer needed.
func (l *link) over() {
	l.fleet.locked(func() {
		delete(l.fleet.mu.trying, l.node)
		l.fleet.mu.resting[l.node] = struct{}{}
	})
	l.fleet.signal()
}
