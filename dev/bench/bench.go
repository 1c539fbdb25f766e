package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"
)

// A scale is the size of a run.
type scale struct {
	rounds       int
	unpaced      int           // events of a backlog that is read as fast as possible
	naive        int           // of these, how many the naive loop reads
	text         int           // events of a backlog that is read as JSON and as BSON
	kept         int           // events of a backlog that takes longer than the checkpoint interval
	paced        time.Duration // of reading at the pace
	behind       int           // events to catch up with at the pace
	delays       time.Duration // of measuring delays
	documents    int
	timeout      time.Duration // for one round
	slow, pace   int           // events a second
	sse          streams       // with different filters
	crowd        streams       // that get everything
	moves, moved int           // rounds in which partitions move, and events a second that are written meanwhile
	stock, shelf int           // documents of a collection that is read alone, and of one that is read during changes
	scan         time.Duration // of changes during the read
	rescan       int           // documents a second that are read during changes; 0 is the default of a node
	sieges       int           // rounds in which identities attack
	siege        time.Duration // the length of each
	published    int           // events that a sink publishes
	retained     time.Duration // of changes that are retained
}

// streams is the size of a race of event streams.
type streams struct {
	count  int // of the streams
	events int // that are written
	rate   int // of these, a second
}

func full() scale {
	return scale{
		rounds: 7, unpaced: 1_000_000, naive: 200_000, text: 300_000, kept: 3_000_000, paced: 3 * time.Second, behind: 500_000,
		delays: 3 * time.Second, documents: 9_600, timeout: 2 * time.Minute, slow: 500, pace: 120_000,
		sse: streams{1000, 30_000, 5_000}, crowd: streams{10_000, 20, 1}, moves: 3, moved: 5_000,
		stock: 1_000_000, shelf: 20_000, scan: 6 * time.Second, sieges: 5, siege: 9 * time.Second, published: 240_000,
		retained: 4 * time.Second,
	}
}

func quick() scale {
	s := full()
	s.rounds = 3
	s.unpaced = 200_000
	s.naive = 50_000
	s.text = 100_000
	s.kept = 200_000
	s.paced = 600 * time.Millisecond
	s.behind = 100_000
	s.delays = 400 * time.Millisecond
	s.timeout = 30 * time.Second
	s.moves = 1
	s.stock = 200_000
	s.scan = 2 * time.Second
	s.sieges = 1
	s.siege = 3 * time.Second
	s.published = 80_000
	s.retained = 1500 * time.Millisecond
	s.sse, s.crowd = streams{1000, 4_000, 5_000}, streams{1000, 20, 10}
	return s
}

const (
	payload        = 64
	partitions     = 64 // the node's default
	manyPartitions = 4096
)

// A bench is one run.
type bench struct {
	flags

	notes io.Writer
	begun time.Time
	log   *worker // the development MongoDB, or the writer to a real one
	etcd  *worker
	// Where clients find them.
	logURI, etcdAddress string
	made                int // databases and clusters so far
	outcomes            map[string][]outcome
	generated           []float64 // events a second at which backlogs were written
}

// An outcome is the result of one round of a contender, with the usage of all processes. If the
// contender is a client, the usage is the node's.
type outcome struct {
	result

	clientCPU time.Duration // of the node's client, -1 if there is none
	serverCPU time.Duration // MongoDB's, -1 if unknown
	examined  int64         // entries that MongoDB's change streams have looked at, -1 if unknown
}

// open starts the servers that contenders read from.
func (b *bench) open(ctx context.Context) (err error) {
	kind := "mongodb"
	if b.uri != "" {
		kind = "writer"
	}
	if b.log, err = startWorker(kind, b.notes); err != nil {
		return err
	}
	if b.etcd, err = startWorker("etcd", b.notes); err != nil {
		return err
	}
	var log, etcd serverAddress
	if err := b.log.call(ctx, "start", serverConfig{URI: b.uri}, &log); err != nil {
		return err
	}
	if err := b.etcd.call(ctx, "start", serverConfig{}, &etcd); err != nil {
		return err
	}
	b.logURI = log.URI
	b.etcdAddress = etcd.URI
	return nil
}

func (b *bench) close() error {
	var errs []error
	for _, p := range []*worker{b.log, b.etcd} {
		if p != nil {
			errs = append(errs, p.close())
		}
	}
	return errors.Join(errs...)
}

// name returns a new name.
func (b *bench) name() string {
	b.made++
	return fmt.Sprintf("bench_%d_%03d", b.begun.Unix(), b.made)
}

// data describes changes in a database of their own.
func (b *bench) data(events, rate int) load {
	return load{DB: b.name(), Events: events, Documents: b.scale.documents, Rate: rate, Payload: payload}
}

// write writes them and returns their start in the oplog.
func (b *bench) write(ctx context.Context, d load) (start int64, err error) {
	var m loadResult
	if err := b.log.call(ctx, "generate", d, &m); err != nil {
		return 0, err
	}
	if d.Rate == 0 {
		b.generated = append(b.generated, float64(d.Events)/m.Took.Seconds())
	}
	return m.Start, nil
}

func (b *bench) drop(ctx context.Context, d load) error {
	return b.log.call(ctx, "drop", d, &none{})
}

// An entry is a contender of a race.
type entry struct {
	name      string
	contender string
	node      bool            // it is a client of a separate node
	adjust    func(*scenario) // nil: nothing
}

// rawLoop and whole are the entries that several races have.
func rawLoop() entry { return entry{name: "raw", contender: "raw"} }
func whole() entry   { return entry{name: "node", contender: "grpc", node: true} }

// with returns an entry of a node with an adjusted scenario.
func with(name string, adjust func(*scenario)) entry {
	e := whole()
	e.name = name
	e.adjust = adjust
	return e
}

// raceBacklog lets contenders read one backlog after the other as fast as they can. The backlog of
// a round is fresh.
func (b *bench) raceBacklog(ctx context.Context, group string, events int, entries ...entry) error {
	for round := range b.scale.rounds {
		data := b.data(events, 0)
		start, err := b.write(ctx, data)
		if err != nil {
			return err
		}
		for _, i := range sequence(round, len(entries)) {
			if err := b.enter(ctx, group, entries[i], b.job(data, start), nil); err != nil {
				return err
			}
		}
		if err := b.drop(ctx, data); err != nil {
			return err
		}
	}
	return nil
}

// raceLive lets contenders follow the end of the oplog while changes are written at a rate.
func (b *bench) raceLive(ctx context.Context, group string, events, rate int, entries ...entry) error {
	return b.raceLiveRounds(ctx, group, b.scale.rounds, events, rate, entries...)
}

func (b *bench) raceLiveRounds(ctx context.Context, group string, rounds, events, rate int, entries ...entry) error {
	for round := range rounds {
		for _, i := range sequence(round, len(entries)) {
			data := b.data(events, rate)
			during := func() error {
				_, err := b.write(ctx, data)
				return err
			}
			if err := b.enter(ctx, group, entries[i], b.job(data, 0), during); err != nil {
				return err
			}
			if err := b.drop(ctx, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// job returns the scenario that reads data.
func (b *bench) job(d load, start int64) scenario {
	return scenario{
		URI: b.logURI, Etcd: b.etcdAddress, DB: d.DB, Start: start, Events: d.Events, Documents: d.Documents, Timeout: b.scale.timeout,
		Partitions: partitions, Name: b.name(), Subscriber: "bench", Coll: collection, Clients: 1,
	}
}

// enter runs one round of one contender in its own process, with a node in another process if the
// contender is a client, and records the outcome. Failures of the contender or the node are part of
// the outcome; failures of the benchmark are the error.
func (b *bench) enter(ctx context.Context, group string, e entry, j scenario, during func() error) error {
	if j.Contender = e.contender; e.adjust != nil {
		e.adjust(&j)
	}
	key := group + "/" + e.name
	profile := ""
	if b.profile != "" {
		profile = b.profileOf(key)
	}
	o, err := b.round(ctx, e, j, profile, during)
	if err != nil {
		return err
	}
	b.outcomes[key] = append(b.outcomes[key], o)
	return nil
}

func (b *bench) round(ctx context.Context, e entry, j scenario, profile string, during func() error) (o outcome, err error) {
	if !e.node {
		j.Profile = profile
		return b.contend(ctx, nil, j, "", during)
	}
	node, err := b.startNode(ctx, &j)
	if err != nil {
		o.Fault = err.Error()
		return o, context.Cause(ctx)
	}
	o, err = b.contend(ctx, node, j, profile, during)
	if closing := node.close(); closing != nil && o.Fault == "" {
		o.Fault = closing.Error()
	}
	return o, err
}

// contend runs a contender, as a client of a node if that is not nil.
func (b *bench) contend(ctx context.Context, node *worker, j scenario, profile string, during func() error) (o outcome, err error) {
	c, err := startWorker("contender", b.notes)
	if err != nil {
		return o, err
	}
	defer func() {
		if closing := c.close(); closing != nil && o.Fault == "" {
			o.Fault = closing.Error()
		}
	}()
	before, err := b.serverUsed(ctx)
	if err != nil {
		return o, err
	}
	o.clientCPU = -1
	begin := func() error {
		if node == nil {
			return nil
		}
		return node.call(ctx, "begin", profile, &none{})
	}
	resting := int64(0)
	read := func() error {
		if during == nil { // reading begins at once
			if err := begin(); err != nil {
				return err
			}
		}
		if err := c.call(ctx, "open", j, &none{}); err != nil {
			return err
		}
		if j.Rest {
			if err := node.call(ctx, "rest", none{}, &resting); err != nil {
				return err
			}
		}
		if during != nil { // the cost of connecting is not a cost of events
			if err := errors.Join(begin(), during()); err != nil {
				return err
			}
		}
		if err := c.call(ctx, "read", none{}, &o.result); err != nil || node == nil {
			return err
		}
		if j.Rest {
			o.Values["resting_mib"] = float64(resting) / (1 << 20)
		}
		o.clientCPU = o.CPU
		return node.call(ctx, "end", none{}, &o.usage)
	}
	if err := read(); err != nil {
		o.Fault = err.Error()
	}
	if ctx.Err() != nil {
		return o, context.Cause(ctx)
	}
	after, err := b.serverUsed(ctx)
	if o.serverCPU = after.CPU - before.CPU; before.CPU < 0 {
		o.serverCPU = -1
	}
	if o.examined = after.Examined - before.Examined; before.Examined < 0 {
		o.examined = -1
	}
	return o, err
}

// startNode starts a node that reads the job's database, and puts its addresses into the job.
func (b *bench) startNode(ctx context.Context, j *scenario) (*worker, error) {
	node, err := startWorker("node", b.notes)
	if err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	life := nodeConfig{Settings: nodeSettings(j, "bench", "127.0.0.1:0"), Process: rand.Text(), Ready: true, File: j.sinkFile()}
	if j.Identities != "" || life.File != "" {
		life.Memory = sampleLimit
	}
	if err := node.call(starting, "start", life, &j.Node); err != nil {
		return nil, errors.Join(err, node.close())
	}
	return node, nil
}

// serverUsed returns what MongoDB has done so far.
func (b *bench) serverUsed(ctx context.Context) (s serverStats, err error) {
	if err = b.log.call(ctx, "stats", none{}, &s); err == nil && b.uri == "" {
		s.CPU, err = b.log.cpu()
	}
	return s, err
}

// A race is a run of several contenders, with a name for the notes and the command line.
type race struct {
	name  string
	run   func(context.Context) error
	needs []string // the races that must have run before
}

// measure runs all races and computes the figures.
func measure(ctx context.Context, o flags, notes io.Writer) (r *report, err error) {
	b := &bench{flags: o, notes: notes, begun: time.Now(), outcomes: make(map[string][]outcome)}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	for _, race := range b.chosen() {
		begun := time.Now()
		if err := race.run(ctx); err != nil {
			return nil, fmt.Errorf("race %s: %w", race.name, err)
		}
		fmt.Fprintf(notes, "%-11s %6.1f s\n", race.name, time.Since(begun).Seconds())
	}
	return b.report(), nil
}

// chosen are the races that run: all, or one and those that it needs.
func (b *bench) chosen() []race {
	all := b.races()
	if b.race == "" {
		return all
	}
	needed := all[slices.IndexFunc(all, func(r race) bool { return r.name == b.race })].needs
	return slices.DeleteFunc(all, func(r race) bool { return r.name != b.race && !slices.Contains(needed, r.name) })
}

// raceNames returns the names of the races.
func raceNames() (names []string) {
	for _, r := range (&bench{}).races() {
		names = append(names, r.name)
	}
	return names
}

func (b *bench) races() []race {
	s := b.scale
	return []race{
		{name: "unpaced", run: func(ctx context.Context) error { // who is compared with whom stands side by side
			return b.raceBacklog(ctx, "unpaced", s.unpaced, rawLoop(),
				entry{name: "naive", contender: "naive", adjust: func(j *scenario) { j.Events = s.naive }}, whole(),
				with("node4096", func(j *scenario) { j.Partitions = manyPartitions }), with("node1", func(j *scenario) { j.Partitions = 1 }))
		}},
		{name: "text", run: func(ctx context.Context) error {
			return b.raceBacklog(ctx, "text", s.text, with("bson", nil), with("json", func(j *scenario) { j.JSON = true }))
		}},
		{name: "checkpoints", run: func(ctx context.Context) error { // longer, because they are saved seconds apart
			return b.raceBacklog(ctx, "checkpoints", s.kept, with("on", nil), with("off", func(j *scenario) { j.Subscriber = "" }))
		}},
		{name: "paced", run: func(ctx context.Context) error {
			return b.raceLive(ctx, "paced", int(float64(s.pace)*s.paced.Seconds()), s.pace, rawLoop(), whole())
		}},
		{name: "catch-up", run: b.raceCatchUp, needs: []string{"unpaced"}},
		{name: "slow", run: func(ctx context.Context) error { return b.raceDelays(ctx, "slow", s.slow) }},
		{name: "half", run: func(ctx context.Context) error { return b.raceDelays(ctx, "half", int(b.capacity()/2)) },
			needs: []string{"unpaced", "paced"}},
		{name: "sse", run: func(ctx context.Context) error {
			browsers := func(name string, n int) entry {
				return entry{name: name, contender: "sse", node: true, adjust: func(j *scenario) { j.Clients = n }}
			}
			return b.raceLive(ctx, "sse", s.sse.events, s.sse.rate, browsers("one", 1), browsers("many", s.sse.count))
		}},
		{name: "crowd", run: b.raceCrowd},
		{name: "snapshot", run: b.raceSnapshots},
		{name: "live", run: b.raceScans},
		{name: "busy", run: b.raceBusy},
		{name: "handoff", run: b.raceHandoffs},
		{name: "tenants", run: b.raceTenants},
		{name: "sinks", run: b.raceSinks, needs: []string{"unpaced"}}, // for the limits
		{name: "retention", run: b.raceRetention},
	}
}

// raceDelays measures the delay from a change to its arrival, with a bare stream, and with a node
// and its client.
func (b *bench) raceDelays(ctx context.Context, group string, rate int) error {
	delays := func(j *scenario) { j.Delays = true }
	return b.raceLive(ctx, group, int(float64(rate)*b.scale.delays.Seconds()), rate, entry{name: "bare", contender: "bare", adjust: delays}, with("node", delays))
}

// capacity returns how many events a second a node and its client can follow on this machine while
// they are written. It is the least of three rates: the read rate of a backlog, the possible write
// rate, and the rate at which the machine's cores are busy, given the cost of an event on all
// sides.
func (b *bench) capacity() float64 {
	least := min(b.measurement("unpaced/node").EventsPerSecond.Median, sample(b.generated).Median)
	paced := b.measurement("paced/node")
	if b.uri == "" && paced.ServerCPU != nil && paced.ClientCPU != nil {
		least = min(least, float64(runtime.NumCPU())*1e6/(paced.CPU.Median+paced.ClientCPU.Median+paced.ServerCPU.Median))
	}
	return least
}

// raceCatchUp reads a backlog through a proxy that lets events out at the pace: contenders wait for
// the server, as they do for a real one.
func (b *bench) raceCatchUp(ctx context.Context) error {
	if b.uri != "" {
		return b.raceBacklog(ctx, "catchup", b.scale.behind, rawLoop(), whole())
	}
	return b.throughDoor(ctx, b.outcomes["unpaced/raw"][0], func(uri string) error {
		through := func(e entry) entry {
			e.adjust = func(j *scenario) { j.URI = uri }
			return e
		}
		return b.raceBacklog(ctx, "catchup", b.scale.behind, through(rawLoop()), through(whole()))
	})
}

// throughDoor runs a race with the address of a proxy that passes the read bytes at the pace.
func (b *bench) throughDoor(ctx context.Context, read outcome, run func(uri string) error) error {
	door, err := startWorker("proxy", b.notes)
	if err != nil {
		return err
	}
	rate := float64(b.scale.pace) * float64(read.Bytes) / float64(max(1, read.Events))
	var way serverAddress
	if err = door.call(ctx, "start", proxyConfig{URI: b.logURI, BytesPerSecond: max(1, rate)}, &way); err == nil {
		err = run(way.URI)
	}
	return errors.Join(err, door.close())
}

// raceHandoffs moves partitions in three ways: with the broadcast window, without it, and by a
// restart. Each has its own cluster and writes its own changes.
func (b *bench) raceHandoffs(ctx context.Context) error {
	entries := []entry{
		{name: "moved", contender: "moved"}, {name: "windowless", contender: "windowless"}, {name: "restarted", contender: "restarted"},
	}
	for round := range b.scale.moves {
		for _, i := range sequence(round, len(entries)) {
			data := load{DB: b.name()}
			job := b.job(data, 0)
			job.Rate = b.scale.moved
			if err := errors.Join(b.enter(ctx, "handoff", entries[i], job, nil), b.drop(ctx, data)); err != nil {
				return err
			}
		}
	}
	return nil
}
