package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/clustertest"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// ttl is how long leases live in the simulation.
const ttl = 3 * time.Second

// A world is one cluster, its stores, and what there is to say about it.
type world struct {
	seed    uint64
	rand    *rand.Rand // of the adversary alone
	breaks  breakage
	running *sync.WaitGroup
	script  *clustertest.Transcript
	began   time.Time

	partitions int
	credit     int           // events, of each session
	overlap    time.Duration // of handoffs
	origin     checkpoint.Origin
	source     *oplogtest.Log
	roster     *clustertest.Memory
	shelf      *shelf
	nodes      []*node
	clients    []*client
	healed     atomic.Bool // nobody is slow any more

	mu struct {
		sync.Mutex

		keyed   []*track                  // the events by partition, and last those of no document
		sunk    []*track                  // by partition, as the sink gets them: those of no document with partition 0
		drunk   []tally                   // by partition: what the sink has acknowledged
		moved   map[change.Partition]bool // an operator has rewound the sink there
		poured  []int                     // by partition: the event after the one that was handed to the sink last
		terms   map[tenure]*tenancy       // of processes that live
		taken   map[tenure]time.Time      // whose keys the leader has taken away
		wrong   []string
		plans   int
		figures figures
		over    bool
	}
}

// Figures are what is counted, to see that what is tested takes place at all.
type figures struct {
	acts, plans, terms, refused, checkpoints, evictions, overlaps, sessions, repeated, released, handed, stood, rewound, alone, detached int
}

func (f figures) add(g figures) figures {
	return figures{
		f.acts + g.acts, f.plans + g.plans, f.terms + g.terms, f.refused + g.refused, f.checkpoints + g.checkpoints, f.evictions + g.evictions,
		f.overlaps + g.overlaps, f.sessions + g.sessions, f.repeated + g.repeated, f.released + g.released, f.handed + g.handed, f.stood + g.stood,
		f.rewound + g.rewound, f.alone + g.alone, f.detached + g.detached,
	}
}

// A breakage is what does not work, to see that it is noticed.
type breakage struct {
	trust      bool // the sink's transport does not ask whether the node may still hand out anything
	fence      bool // the store takes the sink's checkpoints of anybody
	release    bool // last checkpoints of partitions that are handed over are not saved
	ahead      bool // checkpoints are saved further than anybody has acknowledged
	generation bool // the store takes checkpoints of generations that are over
	windows    bool // clients that follow the owners do not hear that the broadcast window of a partition is over
}

// A tenure names a term.
type tenure struct {
	partition change.Partition
	epoch     change.Epoch
}

// A tenancy is a term as the world sees it.
type tenancy struct {
	term    change.Term
	process *process
}

func newWorld(seed uint64, breaks breakage) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		seed: seed, rand: r, breaks: breaks, running: &sync.WaitGroup{}, script: clustertest.BeginTranscript(), began: time.Now(),
		partitions: 4 + r.IntN(5), credit: 1 << 20, source: &oplogtest.Log{ReplyEvents: 1 + r.IntN(30)},
	}
	w.overlap = time.Duration(seed%3) * 500 * time.Millisecond
	if r.IntN(2) == 0 {
		w.credit = 5 + r.IntN(60)
	}
	w.source.Tick(1)
	_, last := w.source.Reach()
	w.origin = checkpoint.Origin{Cluster: "c", Incarnation: 1, Partitions: w.partitions, Start: last}
	w.roster = clustertest.NewMemory(w.partitions, w.now)
	w.roster.SetElectionTTL(ttl)
	w.shelf = newShelf(w, breaks.fence || r.IntN(3) > 0)
	for range w.partitions + 1 {
		w.mu.keyed = append(w.mu.keyed, newTrack())
	}
	w.mu.sunk = append([]*track{newTrack()}, w.mu.keyed[1:w.partitions]...)
	w.mu.moved = map[change.Partition]bool{}
	w.mu.drunk, w.mu.poured = make([]tally, w.partitions), make([]int, w.partitions)
	w.mu.terms, w.mu.taken = map[tenure]*tenancy{}, map[tenure]time.Time{}
	for i := range 3 + r.IntN(3) {
		n := &node{world: w, name: fmt.Sprintf("node-%d", i)}
		n.lives.Store(&[]*process{})
		w.nodes = append(w.nodes, n)
	}
	for i := range 1 + r.IntN(3) {
		w.clients = append(w.clients, newClient(w, fmt.Sprintf("client-%d", i), r.IntN(2) == 0, r.Uint64()))
	}
	w.say("%d nodes, %d partitions, %d clients, a credit of %d events, fenced by keys: %t", len(w.nodes), w.partitions, len(w.clients), w.credit, w.shelf.keyed)
	return w
}

// client returns the client with a name.
func (w *world) client(name string) *client {
	return w.clients[slices.IndexFunc(w.clients, func(c *client) bool { return c.name == name })]
}

// now is the time of the stores.
func (w *world) now() time.Duration { return time.Since(w.began) }

func (w *world) say(format string, args ...any) { w.script.Say(format, args...) }

// wrong notes that something does not hold. It may be called under any mutex but the world's own.
func (w *world) wrong(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.complain(format, args...)
}

// complain is wrong under the mutex.
func (w *world) complain(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.script.Say("WRONG: %s", text)
	if len(w.mu.wrong) < 20 {
		w.mu.wrong = append(w.mu.wrong, text)
	}
}

func (w *world) broken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.wrong) > 0
}

func (w *world) count(f func(*figures)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.mu.figures)
}

// write appends events to the log: mostly changes of a few documents, now and then several at one
// cluster time, and one of no document.
func (w *world) write(n int) {
	partitioner := change.NewPartitioner(w.partitions)
	for n > 0 {
		events := make([]changetest.Event, 1+w.rand.IntN(3))
		for i := range events {
			events[i] = changetest.Event{ID: 1 + int64(w.rand.IntN(100)), Pad: w.rand.IntN(40)}
			if w.rand.IntN(40) == 0 {
				events[i] = changetest.Event{Op: "drop", Keyless: true}
			}
		}
		n -= len(events)
		together := w.rand.IntN(8) == 0
		if together { // of several shards, at the same time
			slices.SortFunc(events, func(a, b changetest.Event) int { return int(a.ID - b.ID) })
			events = slices.CompactFunc(events, func(a, b changetest.Event) bool { return a.ID == b.ID })
			together = !events[0].Keyless
		}
		w.mu.Lock() // nobody sees an event that is not in the index
		for i := range events {
			if together && i > 0 {
				events[i].Time = events[0].Time
			}
			e := w.source.Append(events[i])[0]
			events[i].Time = e.Time
			parsed, err := change.Parse(e.Bytes())
			if err != nil {
				panic(err)
			}
			position := e.Position()
			p, keyed := partitioner.Of(&parsed)
			if !keyed {
				p = change.Partition(w.partitions)
			}
			w.mu.keyed[p].add(position)
			if !keyed || p == 0 {
				w.mu.sunk[0].add(position)
			}
		}
		w.mu.Unlock()
	}
}

// begun takes in that terms have begun.
func (w *world) begun(p *process, terms []change.Term) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, term := range terms {
		key := tenure{term.Partition, term.Epoch}
		if t := w.mu.terms[key]; t != nil {
			if t.process == p {
				continue // claimed once more, because the first time there was no answer
			}
			w.complain("partition %d: two terms of epoch %s", term.Partition, term.Epoch)
		}
		w.mu.terms[key] = &tenancy{term: term, process: p}
		w.mu.figures.terms++
	}
	w.checkTerms()
}

// forget takes away the terms of a process that is no more.
func (w *world) forget(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, t := range w.mu.terms {
		if t.process == p {
			delete(w.mu.terms, key)
		}
	}
}

// evicted notes that the leader takes a key away.
func (w *world) evicted(p change.Partition, epoch change.Epoch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say("partition %d of epoch %s is taken away", p, epoch)
	w.mu.taken[tenure{p, epoch}] = time.Now()
	w.mu.figures.evictions++
}

func (w *world) published(p cluster.Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.plans++
	w.mu.figures.plans++
	w.say("plan %d by %s, %s: %v", p.Version, p.By, p.Cause, p.Owners)
}

// lingers is how long a term may be trusted whose key was taken away: until its node looks, or its
// lease has run out.
const lingers = ttl + 2*time.Second

// relied reports whether the process serves under the term. One that it hands over it serves no
// longer, whatever it knows of the store.
func (t *tenancy) relied() bool {
	return t.term.Err() == nil && t.process.run.Epoch(t.term.Partition) == t.term.Epoch
}

// isTaken reports whether the leader has taken a term's key away. Under the mutex.
func (w *world) isTaken(t *tenancy) bool {
	_, taken := w.mu.taken[tenure{t.term.Partition, t.term.Epoch}]
	return taken
}

// checkTerms looks whether a partition has two owners who may rely on it. Under the mutex.
func (w *world) checkTerms() {
	trusted := make([]*tenancy, w.partitions)
	for key, t := range w.mu.terms {
		if !t.relied() {
			continue
		}
		if at, taken := w.mu.taken[key]; taken {
			if since := time.Since(at); since > lingers {
				w.complain("partition %d, epoch %s: %s relies on it %s after it was taken away", key.partition, key.epoch, t.process.id, since)
			}
			w.mu.figures.overlaps++
			continue
		}
		if other := trusted[key.partition]; other != nil {
			w.complain("partition %d: %s relies on epoch %s, and %s on %s", key.partition, t.process.id, key.epoch, other.process.id, other.term.Epoch)
		}
		trusted[key.partition] = t
	}
}

// check looks at what must hold at any moment.
func (w *world) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkTerms()
}

// owned says who relies on each partition, empty for nobody.
func (w *world) owned() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	owners := make([]string, w.partitions)
	for key, t := range w.mu.terms {
		if t.relied() {
			owners[key.partition] = t.process.node.name
		}
	}
	return owners
}
