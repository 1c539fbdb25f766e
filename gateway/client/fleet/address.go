package fleet

import (
	"context"
	"maps"
	"slices"
)

// Ring is addresses that are tried in turn, for ever.
type Ring struct {
	Addresses []string
	turn      int
}

// Next implements Addresses.
func (r *Ring) Next(ctx context.Context) (string, bool) {
	r.turn++
	return r.Addresses[(r.turn-1)%len(r.Addresses)], ctx.Err() == nil
}

// Others implements Addresses.
func (r *Ring) Others() bool { return len(r.Addresses) > 1 }

// Over implements Addresses.
func (r *Ring) Over() {}

// A search is for a first node. It goes on whenever no session is left and none is being tried.
type search struct{ fleet *Fleet }

// Next implements Addresses.
func (s search) Next(ctx context.Context) (string, bool) {
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

// Others implements Addresses.
func (s search) Others() bool {
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	return len(s.fleet.all()) > 1
}

// Over implements Addresses.
func (search) Over() {}

// all returns the addresses to begin with, and those of nodes that were there last. Under the mutex.
func (f *Fleet) all() []string {
	all := slices.Clone(f.cfg.Addresses)
	for _, address := range slices.Sorted(maps.Values(f.mu.addresses)) {
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return all
}

// A link is to one node, while that owns something and another session is up.
type link struct {
	fleet *Fleet
	node  string
	first bool
}

// Next implements Addresses.
func (l *link) Next(ctx context.Context) (string, bool) {
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

// Others implements Addresses.
func (l *link) Others() bool { return false }

// Over implements Addresses. The link is not at its end: it tries again in its own time, or finds that there is nothing to try.
func (l *link) Over() {
	l.fleet.locked(func() {
		delete(l.fleet.mu.trying, l.node)
		l.fleet.mu.resting[l.node] = struct{}{}
	})
	l.fleet.signal()
}
