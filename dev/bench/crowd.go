package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/gateway/sse"
)

// raceCrowd lets many event streams follow a collection, each all of it, and one stream, whose node
// is what the others are compared with in memory.
func (b *bench) raceCrowd(ctx context.Context) error {
	s := b.scale
	of := func(name string, n int) entry {
		return entry{name: name, contender: "crowd", node: true, adjust: func(j *scenario) {
			j.Clients = n
			j.Delays = true
			j.Rest = true
			j.Timeout = max(j.Timeout, crowdTimeout)
		}}
	}
	return b.raceLiveRounds(ctx, "crowd", s.moves, s.crowd.events, s.crowd.rate, of("one", 1), of("all", s.crowd.count))
}

// crowdTimeout is how long a round of them may take: an address is let in slowly.
const crowdTimeout = 5 * time.Minute

// A crowd is clients of server-sent events that all get everything.
type crowd struct {
	browsers

	delays []time.Duration // of each stream's events, one stream after the other
}

// Open implements contender.
func (c *crowd) Open(ctx context.Context, round *round) error {
	began := time.Now()
	c.query = func(int) url.Values { return url.Values{"db": {round.DB}, "coll": {collection}} }
	c.delays = make([]time.Duration, round.Clients*round.Events)
	err := c.browsers.Open(ctx, round)
	round.record("connected_s", time.Since(began).Seconds())
	return err
}

// Read implements contender. An event is one that has come to one stream.
func (c *crowd) Read(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.end)()
	round := c.round
	var g errgroup.Group
	for i, response := range c.streams {
		g.Go(func() error { return c.listen(i, response) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	round.total = round.Clients * round.Events
	round.check.delays = c.delays
	return nil
}

// listen reads a stream until it has had everything. The first one is checked as a whole, of the
// others the number of events and that their times do not go back.
func (c *crowd) listen(i int, response *http.Response) error {
	own := c.delays[i*c.round.Events : (i+1)*c.round.Events]
	last := int64(0)
	for events := sse.NewReader(response.Body); len(own) > 0; {
		m, err := events.Next()
		now := time.Now()
		if err != nil {
			return fmt.Errorf("follow events: %w", err)
		}
		if m.Event != "" {
			continue
		}
		if i == 0 {
			c.round.check.text(m.Data, now)
		}
		at, known := textNumber(m.Data, `"at":`)
		if !known || at < last {
			return errors.New("an event came before an earlier one, or is not of the benchmark's form")
		}
		last, own[0] = at, now.Sub(time.Unix(0, at))
		own = own[1:]
	}
	return nil
}

var _ contender = (*crowd)(nil)

// crowded is the figure of the race.
func (b *bench) crowded() metric {
	const all, one = "crowd/all", "crowd/one"
	f := b.from(fmt.Sprintf("KiB resident of a node for each of %d idle event streams", b.scale.crowd.count), all, one)
	return f.done(func() (float64, []target) {
		each := func(mib func(measurement) stat) float64 {
			return (mib(f.of(all)).Median - mib(f.of(one)).Median) * 1024 / float64(b.scale.crowd.count-1)
		}
		f.Values["cpu_us_per_delivery"] = f.of(all).CPU.Median
		f.Values["p99_ms"] = f.of(all).P99.Median
		f.Values["connected_s"] = f.of(all).Values["connected_s"].Median
		idle := each(func(m measurement) stat { return m.Values["resting_mib"] })
		return idle, []target{
			atMost("KiB", idle, 24), atMost("KiB at most, busy", each(func(m measurement) stat { return m.RSS }), 40),
			atMost("µs of CPU a delivery", f.of(all).CPU.Median, 36),
		}
	})
}
