package contender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/dedup"
)

// memory reads events once and then measures, without MongoDB, how fast they are remembered. The events are twice as many as are
// remembered and come in rotation, so that every one is new.
type memory struct {
	stream

	remember func() (seen func(*change.Event) bool)
}

// What a lane remembers by default.
const (
	remembered = 10_000
	rememberIn = 3 * time.Minute
)

// MemoryEvents is how many events the contenders in memory are to be given.
const MemoryEvents = 2 * remembered

func window() func(*change.Event) bool {
	w, now := dedup.NewWindow(dedup.Config{Size: remembered, TTL: rememberIn}), time.Now()
	return func(e *change.Event) bool { return w.Seen(e, now) }
}

// expiring is the library's way to the same answer: its own clock and lock, and the whole token in the key.
func expiring() func(*change.Event) bool {
	type key struct {
		time  change.Timestamp
		token string
	}
	lru := expirable.NewLRU[key, struct{}](remembered, nil, rememberIn)
	return func(e *change.Event) bool {
		k := key{time: e.Time(), token: string(e.Token())}
		if _, ok := lru.Get(k); ok {
			return true
		}
		lru.Add(k, struct{}{})
		return false
	}
}

// Open implements Contender. The clocks begin later, in Read.
func (m *memory) Open(ctx context.Context, round *Round) (err error) {
	m.round = round
	if err := m.connect(ctx, round.URI); err != nil {
		return err
	}
	m.cursor, err = m.watch(ctx)
	return err
}

// Read implements Contender.
func (m *memory) Read(ctx context.Context) error {
	var events []change.Event
	check := m.round.Checks[0]
	for !check.Done() && m.cursor.Next(ctx) {
		check.Event(m.cursor.Current, time.Now())
		e, err := change.Parse(append([]byte(nil), m.cursor.Current...))
		if err != nil {
			return err
		}
		events = append(events, e)
	}
	if err := streamError(m.cursor); err != nil || len(events) < MemoryEvents {
		return errors.Join(err, fmt.Errorf("%d events, of %d", len(events), MemoryEvents))
	}
	seen := m.remember()
	m.round.Begin()
	for i := range m.round.Steps {
		if seen(&events[i%len(events)]) {
			return errors.New("an event counts as seen that was forgotten")
		}
	}
	m.round.Did(m.round.Steps)
	if !seen(&events[(m.round.Steps-1)%len(events)]) {
		return errors.New("an event counts as new that was remembered")
	}
	return nil
}
