package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mongostream/streamer/cmd/bench/contender"
	"github.com/mongostream/streamer/cmd/bench/part"
	"github.com/mongostream/streamer/cmd/bench/server"
)

// A scale is how much is measured.
type scale struct {
	rounds     int
	unpaced    int           // events of a backlog that is read as fast as possible
	naive      int           // of these, how many the naive loop reads
	marked     int           // events of a backlog that takes longer than marks are apart
	paced      time.Duration // of reading at the pace
	shared     int           // events that 16 subscribers share
	backlog    int           // events to catch up with
	delays     time.Duration // of measuring delays
	steps      int           // of work in memory
	documents  int
	timeout    time.Duration // for one round
	slow, pace int           // events a second

	subscriptions   int // of gateways
	matched, linear int // events matched, through the index and filter by filter
	handed          int // events handed to a thousand sessions
	followed        int // events that a hundred sessions follow
	sent            int // events sent through gRPC
	moves           int // rounds in which partitions change hands
	moved           int // events a second that are written meanwhile
}

func full() scale {
	return scale{
		rounds: 7, unpaced: 1_000_000, naive: 200_000, marked: 3_000_000, paced: 3 * time.Second, shared: 480_000, backlog: 1_000_000, delays: 3 * time.Second,
		steps: 3_000_000, documents: 9_600, timeout: 2 * time.Minute, slow: 500, pace: 120_000,
		subscriptions: 100_000, matched: 20_000, linear: 10, handed: 100, followed: 16_000, sent: 200_000, moves: 3, moved: 5_000,
	}
}

func quick() scale {
	s := full()
	s.rounds, s.unpaced, s.naive, s.marked, s.paced, s.shared, s.backlog = 3, 300_000, 50_000, 300_000, 600*time.Millisecond, 96_000, 100_000
	s.delays, s.steps, s.timeout = 400*time.Millisecond, 500_000, 30*time.Second
	s.subscriptions, s.matched, s.linear, s.handed, s.followed, s.sent, s.moves = 20_000, 2_000, 5, 20, 3_200, 50_000, 1
	return s
}

const (
	payload       = 64
	subscribers   = 16
	partitions    = 64 // the node's default
	manyPartition = 256
)

// A bench is one run.
type bench struct {
	options

	notes io.Writer
	begun time.Time
	log   *part.Process // the development MongoDB, or what writes to the other one
	etcd  *part.Process
	// Where clients find them.
	logURI, etcdAddress string
	made                int // databases and clusters so far
	outcomes            map[string][]outcome
	generated           []float64 // events a second at which backlogs were made
}

// An outcome is what one round of a contender was like on both sides.
type outcome struct {
	contender.Result

	serverCPU      time.Duration // -1 where it is not known
	examined, sent int64         // -1 where they are not known
}

// open starts what contenders read from.
func (b *bench) open(ctx context.Context) (err error) {
	kind := "mongodb"
	if b.uri != "" {
		kind = "writer"
	}
	if b.log, err = part.Start(kind, b.notes); err != nil {
		return err
	}
	if b.etcd, err = part.Start("etcd", b.notes); err != nil {
		return err
	}
	var log, etcd server.Address
	if err := b.log.Call(ctx, "start", server.Start{URI: b.uri}, &log); err != nil {
		return err
	}
	if err := b.etcd.Call(ctx, "start", server.Start{}, &etcd); err != nil {
		return err
	}
	b.logURI, b.etcdAddress = log.URI, etcd.URI
	return nil
}

func (b *bench) close() error {
	var errs []error
	for _, p := range []*part.Process{b.log, b.etcd} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// name returns a name that was not used before.
func (b *bench) name() string {
	b.made++
	return fmt.Sprintf("bench_%d_%03d", b.begun.Unix(), b.made)
}

// data describes changes in a database of their own.
func (b *bench) data(events, collections int) server.Data {
	return server.Data{DB: b.name(), Collections: collections, Events: events, Documents: b.scale.documents, Payload: payload}
}

// write writes them and returns where in the log they begin.
func (b *bench) write(ctx context.Context, d server.Data) (start int64, err error) {
	var m server.Made
	if err := b.log.Call(ctx, "generate", d, &m); err != nil {
		return 0, err
	}
	if d.Rate == 0 {
		b.generated = append(b.generated, float64(d.Events)/m.Took.Seconds())
	}
	return m.Start, nil
}

func (b *bench) drop(ctx context.Context, d server.Data) error {
	return b.log.Call(ctx, "drop", d, &part.None{})
}

// job is the reading of data by a contender.
func (b *bench) job(c string, d server.Data, start int64) contender.Job {
	return contender.Job{
		Contender: c, URI: b.logURI, Etcd: b.etcdAddress, DB: d.DB, Collections: d.Collections, Start: start, Events: d.Events, Documents: d.Documents,
		Timeout: b.scale.timeout, Partitions: partitions, Name: b.name(),
	}
}

// An entry is a contender of a race.
type entry struct {
	name      string
	contender string
	adjust    func(*contender.Job) // nil: nothing
}

// raceBacklog lets contenders read one backlog after the other as fast as they can. The backlog of a round is fresh.
func (b *bench) raceBacklog(ctx context.Context, group string, d func() server.Data, entries []entry) error {
	for round := range b.scale.rounds {
		data := d()
		start, err := b.write(ctx, data)
		if err != nil {
			return err
		}
		for _, i := range contender.Sequence(round, len(entries)) {
			if err := b.enter(ctx, group, entries[i], b.job(entries[i].contender, data, start), nil); err != nil {
				return err
			}
		}
		if err := b.drop(ctx, data); err != nil {
			return err
		}
	}
	return nil
}

// raceLive lets contenders follow the end of the log while it is written to at a rate.
func (b *bench) raceLive(ctx context.Context, group string, rate int, length time.Duration, entries []entry) error {
	for round := range b.scale.rounds {
		for _, i := range contender.Sequence(round, len(entries)) {
			data := b.data(int(float64(rate)*length.Seconds()), 1)
			data.Rate = rate
			during := func() error {
				_, err := b.write(ctx, data)
				return err
			}
			if err := b.enter(ctx, group, entries[i], b.job(entries[i].contender, data, 0), during); err != nil {
				return err
			}
			if err := b.drop(ctx, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// enter runs one round of one contender in a process of its own and keeps its outcome.
func (b *bench) enter(ctx context.Context, group string, e entry, j contender.Job, during func() error) error {
	p, err := part.Start("contender", b.notes)
	if err != nil {
		return err
	}
	err = b.round(ctx, p, group, e, j, during)
	return errors.Join(err, p.Close())
}

// round runs one round of one contender in a process that is there, and keeps its outcome: what goes wrong with the contender is the
// outcome, what goes wrong with the benchmark is the error.
func (b *bench) round(ctx context.Context, p *part.Process, group string, e entry, j contender.Job, during func() error) error {
	if e.adjust != nil {
		e.adjust(&j)
	}
	key := group + "/" + e.name
	if b.profile != "" {
		j.Profile = b.profileOf(key)
	}
	before, err := b.meter(ctx)
	if err != nil {
		return err
	}
	var o outcome
	err = p.Call(ctx, "open", j, &part.None{})
	if err == nil {
		if during != nil {
			if err := during(); err != nil {
				return err
			}
		}
		err = p.Call(ctx, "read", part.None{}, &o.Result)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		o.Fault = err.Error()
	}
	after, err := b.meter(ctx)
	if err != nil {
		return err
	}
	o.serverCPU, o.examined, o.sent = after.CPU-before.CPU, after.Examined-before.Examined, after.Sent-before.Sent
	if before.CPU < 0 {
		o.serverCPU = -1
	}
	if before.Sent < 0 {
		o.examined, o.sent = -1, -1
	}
	b.outcomes[key] = append(b.outcomes[key], o)
	return nil
}

// meter reads what the server has done so far.
func (b *bench) meter(ctx context.Context) (s server.Stats, err error) {
	if err := b.log.Call(ctx, "stats", part.None{}, &s); err != nil {
		return s, err
	}
	if b.uri == "" {
		s.CPU, err = b.log.CPU()
	}
	return s, err
}
