package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/mongostream/streamer/cmd/bench/contender"
	"github.com/mongostream/streamer/cmd/bench/figure"
	"github.com/mongostream/streamer/cmd/bench/part"
	"github.com/mongostream/streamer/cmd/bench/server"
)

// A race is some contenders' running, under a name for the notes.
type race struct {
	name string
	run  func(context.Context) error
}

// measure runs all races and computes the figures.
func measure(ctx context.Context, o options, notes io.Writer) (r *report, err error) {
	b := &bench{options: o, notes: notes, begun: time.Now(), outcomes: make(map[string][]outcome)}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	races := []race{
		{"unpaced", b.raceUnpaced}, {"marks", b.raceMarks}, {"paced", b.racePaced}, {"shared", b.raceShared}, {"delays", b.raceDelays}, {"memory", b.raceMemory},
	}
	if o.gateway {
		races = append(races, b.gatewayRaces()...)
	}
	races = append(races, race{"catch-up", b.raceCatchUp}) // the last one: it moves the server's clock, and delays mean nothing from then on
	for _, race := range races {
		begun := time.Now()
		if err := race.run(ctx); err != nil {
			return nil, fmt.Errorf("race %s: %w", race.name, err)
		}
		fmt.Fprintf(notes, "%-9s %6.1f s\n", race.name, time.Since(begun).Seconds())
	}
	return b.report(), nil
}

// raceUnpaced reads a backlog as fast as possible: the capacity of the client, where the server is the development one. Who is
// compared with whom stands side by side.
func (b *bench) raceUnpaced(ctx context.Context) error {
	return b.raceBacklog(ctx, "unpaced", func() server.Data { return b.data(b.scale.unpaced, 1) }, []entry{
		{name: "raw", contender: "raw"},
		{name: "naive", contender: "naive", adjust: func(j *contender.Job) { j.Events = b.scale.naive }},
		{name: "node", contender: "node"},
		{name: "node256", contender: "node", adjust: func(j *contender.Job) { j.Partitions = manyPartition }},
		{name: "node1", contender: "node", adjust: func(j *contender.Job) { j.Partitions = 1 }},
		{name: "unsubscribed", contender: "node", adjust: func(j *contender.Job) { j.Unsubscribe = true }},
	})
}

// raceMarks is longer, because marks are saved in rounds at least 2 s apart: a short run has one round too many, or none.
func (b *bench) raceMarks(ctx context.Context) error {
	return b.raceBacklog(ctx, "marks", func() server.Data { return b.data(b.scale.marked, 1) }, []entry{
		{name: "node", contender: "node"}, {name: "unmarked", contender: "node", adjust: func(j *contender.Job) { j.Unmarked = true }},
	})
}

// racePaced follows the end of the log at the pace. A real server has its own pace, which is that of its backlogs.
func (b *bench) racePaced(ctx context.Context) error {
	if b.uri != "" {
		for _, name := range []string{"raw", "node"} {
			b.outcomes["paced/"+name] = b.outcomes["unpaced/"+name]
		}
		return nil
	}
	return b.raceLive(ctx, "paced", b.scale.pace, b.scale.paced, []entry{{name: "raw", contender: "raw"}, {name: "node", contender: "node"}})
}

// raceShared serves subscribers of different collections: with a change stream each, and with one tail for all.
func (b *bench) raceShared(ctx context.Context) error {
	return b.raceBacklog(ctx, "shared", func() server.Data { return b.data(b.scale.shared, subscribers) }, []entry{
		{name: "streams", contender: "streams"},
		{name: "tail", contender: "node", adjust: func(j *contender.Job) { j.PerSession = true }},
	})
}

// A load is a group of rounds at so many events a second.
type load struct {
	group string
	rate  int
}

// raceDelays measures the way from a change to its arrival, with a bare stream and with the node in one process.
func (b *bench) raceDelays(ctx context.Context) error {
	return b.delays(ctx, []load{{"slow", b.scale.slow}, {"half", int(b.capacity() / 2)}}, []entry{{name: "bare", contender: "bare"}, {name: "node", contender: "node"}})
}

// delays lets contenders take turns in one process at following the end of the log.
func (b *bench) delays(ctx context.Context, loads []load, entries []entry) error {
	p, err := part.Start("contender", b.notes)
	if err != nil {
		return err
	}
	for _, load := range loads {
		for round := range b.scale.rounds {
			for _, i := range contender.Sequence(round, len(entries)) {
				data := b.data(int(float64(load.rate)*b.scale.delays.Seconds()), 1)
				data.Rate = load.rate
				job := b.job(entries[i].contender, data, 0)
				job.Delays = true
				during := func() error {
					_, err := b.write(ctx, data)
					return err
				}
				if err := errors.Join(b.round(ctx, p, load.group, entries[i], job, during), b.drop(ctx, data)); err != nil {
					return errors.Join(err, p.Close())
				}
			}
		}
	}
	return p.Close()
}

// capacity is how many events a second the node can follow here while they are written: what it takes from a backlog, what can be
// written, and what the machine's cores have time for at what both sides cost at the pace, whichever is least.
func (b *bench) capacity() float64 {
	least := min(b.measurement("unpaced/node").EventsPerSecond.Median, figure.Sample(b.generated).Median)
	paced := b.measurement("paced/node")
	if b.uri == "" && paced.ServerCPU != nil {
		least = min(least, float64(runtime.NumCPU())*1e6/(paced.ClientCPU.Median+paced.ServerCPU.Median))
	}
	return least
}

// raceMemory measures the window in memory.
func (b *bench) raceMemory(ctx context.Context) error {
	adjust := func(j *contender.Job) { j.Steps = b.scale.steps }
	return b.raceBacklog(ctx, "memory", func() server.Data { return b.data(contender.MemoryEvents, 1) }, []entry{
		{name: "window", contender: "window", adjust: adjust}, {name: "expirable", contender: "expirable", adjust: adjust},
	})
}

// Where a backlog is older than this, a node opens its tail at the log's end and catches up beside it.
const recent = time.Minute

// raceCatchUp reads a backlog that is older than the tail, unpaced and then at the pace.
func (b *bench) raceCatchUp(ctx context.Context) error {
	data := b.data(b.scale.backlog, 1)
	start, err := b.write(ctx, data)
	if err != nil {
		return err
	}
	if err := b.ripen(ctx); err != nil {
		return err
	}
	entries := []entry{{name: "raw", contender: "raw"}, {name: "node", contender: "node"}}
	race := func(group, uri string) error {
		for round := range b.scale.rounds {
			for _, i := range contender.Sequence(round, len(entries)) {
				job := b.job(entries[i].contender, data, start)
				job.URI = uri
				if err := b.enter(ctx, group, entries[i], job, nil); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := race("backlog", b.logURI); err != nil {
		return err
	}
	if b.uri != "" {
		for _, e := range entries {
			b.outcomes["catchup/"+e.name] = b.outcomes["backlog/"+e.name]
		}
		return b.drop(ctx, data)
	}
	return b.throughDoor(ctx, b.outcomes["backlog/raw"][0], func(uri string) error { return race("catchup", uri) })
}

// throughDoor runs a race on a way to the server that lets events through at the pace; they are as large as in the outcome.
func (b *bench) throughDoor(ctx context.Context, o outcome, race func(uri string) error) error {
	door, err := part.Start("door", b.notes)
	if err != nil {
		return err
	}
	var way server.Address
	rate := float64(b.scale.pace) * float64(o.Bytes) / float64(max(1, o.Events))
	err = door.Call(ctx, "start", server.Door{URI: b.logURI, BytesPerSecond: max(1, rate)}, &way)
	if err == nil {
		err = race(way.URI)
	}
	return errors.Join(err, door.Close())
}

// ripen lets what was written become old: by moving the development server's clock, or by waiting. The change written then moves the
// log's end.
func (b *bench) ripen(ctx context.Context) error {
	if b.uri == "" {
		if err := b.log.Call(ctx, "shift", server.Shift{By: 2 * recent}, &part.None{}); err != nil {
			return err
		}
	} else {
		wait := time.NewTimer(recent + recent/10)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	data := b.data(1, 1)
	_, err := b.write(ctx, data)
	return errors.Join(err, b.drop(ctx, data))
}
