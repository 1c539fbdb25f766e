package client

import (
	"context"
	"maps"
	"slices"
)

// A ring is addresses that are tried in turn, for ever.
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

// A search is for a first node. It goes on whenever no session is left and none is being tried.
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
			f.mu.version = 0 // whoever is found knows better
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

// all returns the addresses to begin with, and those of nodes that were there last. Under the mutex.
func (f *fleet) all() []string {
	all := slices.Clone(f.cfg.addresses)
	for _, address := range slices.Sorted(maps.Values(f.mu.addresses)) {
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return all
}

// A link is to one node, while that owns something and another session is up.
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

// over implements addresses. The link is not at its end: it tries again in its own time, or finds that there is nothing to try.
func (l *link) over() {
	l.fleet.locked(func() {
		delete(l.fleet.mu.trying, l.node)
		l.fleet.mu.resting[l.node] = struct{}{}
	})
	l.fleet.signal()
}
