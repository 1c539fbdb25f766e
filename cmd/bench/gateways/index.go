package gateways

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cmd/bench/contender"
	"github.com/mongostream/streamer/match"
)

// crowds keeps crowds, which take seconds to compile, for the rounds of one process.
type crowds struct {
	sync.Mutex
	sizes map[int]*crowd
}

func (c *crowds) of(size int) (*crowd, error) {
	c.Lock()
	defer c.Unlock()
	if kept := c.sizes[size]; kept != nil {
		return kept, nil
	}
	made, err := newCrowd(size)
	if err == nil {
		c.sizes[size] = made
	}
	return made, err
}

// few is how many subscriptions the contender of that name has.
const few = 1000

// A matcher finds out which subscriptions each event matches: through the index, or one filter after the other.
type matcher struct {
	crowds *crowds
	choose func(*crowd) []*match.Program
	size   int // 0 for that of the job
	linear bool

	round    *contender.Round
	programs []*match.Program
	events   []change.Event
}

// Readers implements contender.Contender.
func (m *matcher) Readers(contender.Job) int { return 1 }

// variety is how many different events there are.
const variety = 4096

// Open implements contender.Contender. The clocks begin in Read.
func (m *matcher) Open(_ context.Context, round *contender.Round) error {
	crowd, err := m.crowds.of(cmp.Or(m.size, round.Subscriptions))
	if err != nil {
		return err
	}
	m.round, m.programs = round, m.choose(crowd)
	m.events, err = crowd.events(min(variety, round.Steps))
	return err
}

// Read implements contender.Contender.
func (m *matcher) Read(context.Context) error {
	x := index(m.programs)
	var failure error
	var ids []match.ID
	report := func(id match.ID, err error) { failure = errors.Join(failure, fmt.Errorf("filter %d: %w", id, err)) }
	// Once without the clock, which plans the programs; and what is compared must agree.
	for i := range m.events[:min(len(m.events), 16)] {
		ids = x.Match(&m.events[i], ids[:0], report)
		if n, err := m.one(&m.events[i]); err != nil || n != len(ids) {
			return errors.Join(err, failure, fmt.Errorf("the index finds %d subscriptions, their filters %d", len(ids), n))
		}
	}
	runtime.GC() // what was left from making the crowd
	m.round.Begin()
	for i := range m.round.Steps {
		e := &m.events[i%len(m.events)]
		if !m.linear {
			ids = x.Match(e, ids[:0], report)
		} else if _, err := m.one(e); err != nil {
			return err
		}
	}
	m.round.Did(m.round.Steps)
	return failure
}

// one asks one filter after the other, and returns how many want the event.
func (m *matcher) one(e *change.Event) (n int, err error) {
	for _, p := range m.programs {
		yes, err := p.Match(e)
		if err != nil {
			return n, err
		}
		if yes {
			n++
		}
	}
	return n, nil
}

// Close implements contender.Contender.
func (m *matcher) Close() error { return nil }
