package delivery

import (
	"context"
	"maps"
	"slices"
)

// Filters returns the session's subscriptions, the first ones by their IDs and at most so many,
// and how many there are. It waits for the owner of the session, and for one caller at a time; ok
// is false if the context or the session ends first. The caller must not change them.
func (s *Session) Filters(ctx context.Context, most int) (filters []Subscription, total int, ok bool) {
	select {
	case s.filtersAsked <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, false
	case <-s.done:
		return nil, 0, false
	}
	type answer struct {
		filters []Subscription
		total   int
	}
	told := make(chan answer, 1)
	s.do(func(s *stream) {
		defer func() { <-s.filtersAsked }()
		a := answer{total: len(s.subscriptions)}
		ids := slices.Sorted(maps.Keys(s.subscriptions))
		for _, id := range ids[:min(len(ids), most)] {
			sub := s.subscriptions[id]
			a.filters = append(a.filters, Subscription{ID: sub.ID, Program: sub.Program})
		}
		told <- a
	})
	select {
	case a := <-told:
		return a.filters, a.total, true
	case <-ctx.Done():
	case <-s.done:
	}
	return nil, 0, false
}
