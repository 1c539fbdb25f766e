package gateways

import (
	"github.com/mongostream/streamer/cmd/bench/contender"
	"github.com/mongostream/streamer/gateway/wire"
	"github.com/mongostream/streamer/match"
)

// All are the contenders by their names.
func All() map[string]func() contender.Contender {
	kept := &crowds{sizes: make(map[int]*crowd)}
	matching := func(size int, linear bool, choose func(*crowd) []*match.Program) func() contender.Contender {
		return func() contender.Contender {
			return &matcher{crowds: kept, size: size, linear: linear, choose: choose}
		}
	}
	all := func(c *crowd) []*match.Program { return c.programs }
	indexable := func(c *crowd) []*match.Program { return c.indexable }
	rest := func(c *crowd) []*match.Program { return c.rest }
	return map[string]func() contender.Contender{
		"indexed": matching(0, false, all), "indexable": matching(0, false, indexable), "few": matching(few, false, indexable),
		"linear": matching(0, true, all), "rest": matching(0, true, rest),
		"once": func() contender.Contender { return many(false) }, "each": func() contender.Contender { return many(true) },
		"alone": func() contender.Contender { return beside(0) }, "stalled": func() contender.Contender { return beside(10) },
		"batched": func() contender.Contender { return &messenger{events: wire.MaxBatchEvents} },
		"single":  func() contender.Contender { return &messenger{events: 1} },
	}
}
