package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/cluster/rostertest"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/gateway/wire"
	"github.com/mongostream/streamer/internal/transcript"
	"github.com/mongostream/streamer/lane/lanetest"
)

// ttl is how long leases live in the simulation.
const ttl = 3 * time.Second

// A world is one cluster, its stores, and what there is to say about it.
type world struct {
	seed    uint64
	rand    *rand.Rand // of the adversary alone
	breaks  breakage
	running *sync.WaitGroup
	script  *transcript.Transcript
	began   time.Time

	partitions int
	credit     int // events, of each gateway's session
	source     *lanetest.Log
	roster     *rostertest.Memory
	marks      *shelf
	nodes      []*node
	gateways   []*gateway
	healed     atomic.Bool // nobody is slow any more

	mu struct {
		sync.Mutex

		written [][]written          // by partition, in the order of the log
		index   []map[identity]int   // by partition: where an event is in written
		sunk    []int                // by partition: so many events have been acknowledged by sinks, without a hole
		acked   []map[int]bool       // those behind
		terms   map[tenure]*tenancy  // of processes that live
		taken   map[tenure]time.Time // whose keys the leader has taken away
		wrong   []string
		plans   int
		figures figures
		over    bool
	}
}

// Figures are what is counted, to see that what is tested takes place at all.
type figures struct {
	acts, plans, terms, refused, marks, evictions, overlaps, detached, sessions, repeated, released, stood int
}

func (f figures) add(g figures) figures {
	return figures{
		f.acts + g.acts, f.plans + g.plans, f.terms + g.terms, f.refused + g.refused, f.marks + g.marks, f.evictions + g.evictions, f.overlaps + g.overlaps,
		f.detached + g.detached, f.sessions + g.sessions, f.repeated + g.repeated, f.released + g.released, f.stood + g.stood,
	}
}

// A breakage is what does not work, to see that it is noticed.
type breakage struct {
	trust   bool // nobody asks whether the node may still hand out anything
	fence   bool // the store takes marks of anybody
	release bool // last marks of partitions that are given up are not saved
	hold    bool // gateways hold no marks
}

// An identity is how gateways know an event.
type identity struct {
	head [change.HeadSize]byte
	hash [16]byte
}

type written struct {
	position change.Position
	identity identity
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
	said    instant // when it last said that it is trusted
}

func newWorld(seed uint64, breaks breakage) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		seed: seed, rand: r, breaks: breaks, running: &sync.WaitGroup{}, script: transcript.Begin(), began: time.Now(),
		partitions: 4 + r.IntN(5), credit: 1 << 20, source: &lanetest.Log{ReplyEvents: 1 + r.IntN(30)},
	}
	if r.IntN(2) == 0 {
		w.credit = 5 + r.IntN(60)
	}
	w.source.Tick(1)
	w.roster = rostertest.NewMemory(w.partitions, w.now)
	w.roster.SetElectionTTL(ttl)
	w.marks = newShelf(w)
	w.mu.written, w.mu.index = make([][]written, w.partitions), make([]map[identity]int, w.partitions)
	w.mu.sunk, w.mu.acked = make([]int, w.partitions), make([]map[int]bool, w.partitions)
	for p := range w.partitions {
		w.mu.index[p], w.mu.acked[p] = map[identity]int{}, map[int]bool{}
	}
	w.mu.terms, w.mu.taken = map[tenure]*tenancy{}, map[tenure]time.Time{}
	for i := range 3 + r.IntN(3) {
		w.nodes = append(w.nodes, &node{world: w, name: fmt.Sprintf("node-%d", i)})
	}
	for i := range 1 + r.IntN(3) {
		w.gateways = append(w.gateways, newGateway(w, fmt.Sprintf("gateway-%d", i), r.Uint64()))
	}
	w.say("%d nodes, %d partitions, %d gateways with a credit of %d events", len(w.nodes), w.partitions, len(w.gateways), w.credit)
	return w
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

// write appends events to the log: mostly changes of a few documents, now and then several at one cluster time, and one of no document.
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
			first, last := change.Partition(0), change.Partition(w.partitions-1)
			if p, keyed := partitioner.Of(&parsed); keyed {
				first, last = p, p
			}
			position := e.Position()
			id := identity{wire.HeadOf(position), position.Hash()}
			for p := first; p <= last; p++ {
				w.mu.index[p][id] = len(w.mu.written[p])
				w.mu.written[p] = append(w.mu.written[p], written{position, id})
			}
		}
		w.mu.Unlock()
	}
}

// upTo returns how many events of a partition stand at or before the position. Under the mutex.
func (w *world) upTo(p change.Partition, at change.Position) int {
	n, _ := slices.BinarySearchFunc(w.mu.written[p], at, func(e written, at change.Position) int {
		if e.position.After(at) {
			return 1
		}
		return -1
	})
	return n
}

// Survey implements [survey.Surveyor].
func (w *world) Survey(context.Context) (gap.Reach, error) {
	first, last := w.source.Reach()
	return gap.Reach{First: first, Last: last, Majority: last}, nil
}

// begun takes in that terms have begun.
func (w *world) begun(p *process, terms []change.Term) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, term := range terms {
		key := tenure{term.Partition, term.Epoch}
		if t := w.mu.terms[key]; t != nil {
			if t.process == p && t.term.Context == term.Context {
				continue // handed on once more, because the first time it was not taken
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

func (w *world) published(p roster.Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.plans++
	w.mu.figures.plans++
	w.say("plan %d by %s, %s: %v", p.Version, p.By, p.Cause, p.Owners)
}

// lingers is how long a term may be trusted whose key was taken away: until its node looks, or its lease has run out.
const lingers = ttl + 2*time.Second

// checkTerms looks whether a partition has two owners who may rely on it. Under the mutex.
func (w *world) checkTerms() {
	trusted := make([]*tenancy, w.partitions)
	for key, t := range w.mu.terms {
		if t.term.Err() != nil {
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
		if t.term.Err() == nil {
			owners[key.partition] = t.process.node.name
		}
	}
	return owners
}

// An instant is a moment of virtual time that can be compared and set by any goroutine.
type instant struct {
	mu sync.Mutex
	at time.Time
}

func (i *instant) set(at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at = at
}

// isNow reports whether it was set at this very moment.
func (i *instant) isNow() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.at.Equal(time.Now())
}
