package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// A chronicle is a history that is being made.
type chronicle struct {
	clusterPlace

	began time.Time
	event atomic.Int64

	mu struct {
		sync.Mutex

		operations []porcupine.Operation
		processes  int
		claimed    []cluster.Owner // by partition, of claims that have returned
		refused    map[string]int
	}
}

// note adds what was done since a moment.
func (c *chronicle) note(client int, call time.Duration, d deed, o outcome) {
	op := porcupine.Operation{ClientId: client, Input: d, Call: int64(call), Output: o, Return: int64(time.Since(c.began))}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.operations = append(c.mu.operations, op)
	if o.refused || d.kind == "claim" && o.process != d.process {
		c.mu.refused[d.kind]++
	}
}

func (c *chronicle) process() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.processes++
	return c.mu.processes
}

// known tells errors after which a call is made again from those that end it.
func (c *chronicle) known(what string, err error) bool {
	if err == nil || errors.Is(err, cluster.ErrLeft) || errors.Is(err, checkpoint.ErrFenced) {
		return true
	}
	if fault.Of(err) != fault.EtcdUnreachable && !errors.Is(err, context.DeadlineExceeded) {
		c.Errorf("%s gave %v", what, err)
		return true
	}
	return false
}

// A player is a node that does at random what nodes do.
type player struct {
	*chronicle

	client      int
	rng         *rand.Rand
	store       *ClusterStore
	checkpoints *Store
	process     int
	seat        cluster.Membership
	terms       map[change.Partition]change.Term // as it believes
}

// play makes so many moves.
func (p *player) play(moves int) {
	for range moves {
		if p.seat == nil {
			p.join()
			continue
		}
		switch r := p.rng.IntN(100); {
		case r < 30:
			p.claim()
		case r < 80:
			p.save()
		case r < 92:
			p.give()
		case r < 96:
			p.leave()
		default:
			p.banish()
		}
	}
	if p.seat != nil {
		p.leave()
	}
}

func (p *player) join() {
	if p.process == 0 {
		p.process = p.chronicle.process()
	}
	first := cluster.Heartbeat{Node: fmt.Sprintf("node-%d", p.client), Process: fmt.Sprint(p.process)}
	seat, err := p.store.Join(p.Context(), first, time.Minute)
	if err != nil {
		p.known("join", err)
		return
	}
	p.seat, p.terms = seat, make(map[change.Partition]change.Term)
}

func (p *player) claim() {
	wanted := make([]change.Partition, 0, parts)
	for i := range change.Partition(parts) {
		if p.rng.IntN(4) > 0 {
			wanted = append(wanted, i)
		}
	}
	call := time.Since(p.began)
	owners, err := p.seat.Claim(p.Context(), wanted)
	if err != nil && !errors.Is(err, cluster.ErrLeft) {
		p.Errorf("claim gave %v", err)
		return
	}
	for i, partition := range wanted {
		var o outcome
		if o.refused = err != nil; !o.refused {
			if _, err := fmt.Sscan(owners[i].Process, &o.process); err != nil {
				p.Errorf("the owner of partition %d is %+v", partition, owners[i])
			}
			o.epoch = owners[i].Epoch.Revision
			if _, has := p.terms[partition]; o.process == p.process && !has {
				p.terms[partition] = change.Term{Partition: partition, Epoch: owners[i].Epoch, Context: p.Context()}
				p.mu.Lock()
				p.mu.claimed[partition] = owners[i]
				p.mu.Unlock()
			}
			if term := p.terms[partition]; o.process == p.process && term.Epoch != owners[i].Epoch { // evicted and claimed anew
				p.terms[partition] = change.Term{Partition: partition, Epoch: owners[i].Epoch, Context: p.Context()}
			}
		}
		p.note(p.client, call, deed{kind: "claim", partition: partition, process: p.process}, o)
	}
	if err != nil {
		p.left()
		return
	}
	for _, partition := range wanted {
		if term, has := p.terms[partition]; has {
			p.begin(term)
		}
	}
}

// begin reads the mark under a term.
func (p *player) begin(term change.Term) {
	call := time.Since(p.began)
	claimed, err := p.checkpoints.ClaimTerms(p.Context(), checkpointtest.Subscriber, []change.Term{term})
	if !p.known("begin", err) {
		return
	}
	var o outcome
	if o.refused = err != nil; !o.refused {
		o.at = 4 * int(claimed[0].Position.Time.I)
	}
	p.note(p.client, call, deed{kind: "begin", partition: term.Partition, process: p.process, epoch: term.Epoch.Revision}, o)
}

func (p *player) save() {
	for partition, term := range p.terms {
		d := deed{kind: "save", partition: partition, process: p.process, epoch: term.Epoch.Revision, at: 4 * int(p.event.Add(1))}
		call := time.Since(p.began)
		c := checkpointtest.Shared(term, checkpointtest.Event(d.at))
		err := p.checkpoints.Save(p.Context(), []checkpoint.Checkpoint{c})[0]
		for !p.known("save", err) {
			d.again = true
			err = p.checkpoints.Save(p.Context(), []checkpoint.Checkpoint{c})[0]
		}
		p.note(p.client, call, d, outcome{refused: err != nil})
		if err != nil && p.rng.IntN(4) == 0 {
			delete(p.terms, partition) // else it goes on to believe
		}
	}
}

func (p *player) give() {
	for partition, term := range p.terms {
		call := time.Since(p.began)
		if err := p.seat.Return(p.Context(), []change.Partition{partition}, []change.Epoch{term.Epoch}); err != nil {
			p.Errorf("give gave %v", err)
		}
		p.note(p.client, call, deed{kind: "give", partition: partition, process: p.process, epoch: term.Epoch.Revision}, outcome{})
		delete(p.terms, partition)
		return
	}
}

func (p *player) leave() {
	call := time.Since(p.began)
	if err := p.seat.Leave(p.Context()); err != nil {
		p.Errorf("leave gave %v", err)
	}
	p.noteEnd(call)
	p.left()
}

// banish ends the lease behind the node's back, which goes on until it learns it.
func (p *player) banish() {
	call := time.Since(p.began)
	_, _ = p.raw.Revoke(p.Context(), p.seat.(*membership).lease)
	p.noteEnd(call)
}

func (p *player) noteEnd(call time.Duration) {
	for i := range change.Partition(parts) {
		p.note(p.client, call, deed{kind: "leave", partition: i, process: p.process}, outcome{})
	}
}

func (p *player) left() { p.seat, p.process = nil, 0 }

// evict plays the leader until the others are done. It is one again when it was for too long
// without a connection.
func (c *chronicle) evict(s *ClusterStore, rng *rand.Rand, done <-chan struct{}) {
	var leads cluster.Leadership
	defer func() {
		if leads != nil {
			_ = leads.Resign(c.Context())
		}
	}()
	pause := time.NewTicker(3 * time.Millisecond)
	defer pause.Stop()
	for {
		select {
		case <-done:
			return
		case <-pause.C:
		}
		if leads == nil {
			l, err := s.Campaign(c.Context(), "leader")
			if err == nil {
				leads = l
			} else if !errors.Is(err, cluster.ErrDeposed) {
				c.known("campaign", err)
			}
			continue
		}
		partition := change.Partition(rng.IntN(parts))
		c.mu.Lock()
		victim := c.mu.claimed[partition]
		c.mu.claimed[partition] = cluster.Owner{}
		c.mu.Unlock()
		if victim == (cluster.Owner{}) {
			continue
		}
		call := time.Since(c.began)
		err := leads.Evict(c.Context(), partition, victim.Epoch)
		c.note(0, call, deed{kind: "evict", partition: partition, epoch: victim.Epoch.Revision}, outcome{refused: err != nil})
		switch {
		case errors.Is(err, cluster.ErrDeposed):
			_ = leads.Resign(c.Context())
			leads = nil
		case err != nil:
			c.Errorf("evict gave %v", err)
		}
	}
}

// spoil gets in the way of the players' connections until they are done.
func (c *chronicle) spoil(links []*etcdtest.Link, rng *rand.Rand, done <-chan struct{}) {
	toxics := []string{
		`{"name": "x", "type": "reset_peer", "stream": "upstream", "attributes": {"timeout": %d}}`,
		`{"name": "x", "type": "reset_peer", "stream": "downstream", "attributes": {"timeout": %d}}`,
		`{"name": "x", "type": "timeout", "stream": "upstream", "attributes": {"timeout": 1%d}}`,
		`{"name": "x", "type": "timeout", "stream": "downstream", "attributes": {"timeout": 1%d}}`,
		`{"name": "x", "type": "latency", "stream": "downstream", "attributes": {"latency": %d}}`,
	}
	for {
		heal := links[rng.IntN(len(links))].Spoil(fmt.Sprintf(toxics[rng.IntN(len(toxics))], rng.IntN(10)))
		pause := time.NewTimer(time.Duration(1+rng.IntN(40)) * time.Millisecond)
		select {
		case <-done:
			pause.Stop()
			heal()
			return
		case <-pause.C:
			heal()
		}
	}
}

// checkHistory has four nodes and a leader fight for four partitions over bad connections, and
// checks the history.
func checkHistory(t *testing.T, endpoints []string, seed uint64, moves int) (operations int, refused map[string]int) {
	t.Helper()
	c := &chronicle{clusterPlace: newClusterPlace(t, endpoints), began: time.Now()}
	c.mu.claimed, c.mu.refused = make([]cluster.Owner, parts), make(map[string]int)
	random := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	done := make(chan struct{})
	var players, others sync.WaitGroup
	links := make([]*etcdtest.Link, 4)
	for i := range links {
		links[i] = c.link()
		client := c.dial(links[i])
		p := &player{
			chronicle: c, client: i + 1, rng: random(uint64(i)),
			store: NewClusterStore(client, ClusterConfig{Partitions: n}), checkpoints: NewStore(client, n),
		}
		players.Go(func() { p.play(moves) })
	}
	leader, rng := c.store(links[0]), random(98)
	others.Go(func() { c.evict(leader, rng, done) })
	others.Go(func() { c.spoil(links, random(99), done) })
	players.Wait()
	close(done)
	others.Wait()
	if c.mu.processes > 62 {
		t.Fatalf("%d processes do not fit the model", c.mu.processes)
	}
	if result := porcupine.CheckOperationsTimeout(model(), c.mu.operations, time.Minute); result != porcupine.Ok {
		t.Errorf("seed %d: the history of %d operations is %s", seed, len(c.mu.operations), result)
	}
	return len(c.mu.operations), c.mu.refused
}

func TestHistoriesOfClaimsAndMarksHaveOneOwner(t *testing.T) {
	t.Parallel()
	endpoints := etcdtest.Endpoints(t)
	total, refused := 0, make(map[string]int)
	for seed := range uint64(4) {
		operations, some := checkHistory(t, endpoints, seed, 60)
		total += operations
		for kind, count := range some {
			refused[kind] += count
		}
	}
	t.Logf("%d operations, refused: %v", total, refused)
	for _, kind := range []string{"claim", "save"} {
		if refused[kind] == 0 {
			t.Errorf("no %s was refused: nothing was fought for", kind)
		}
	}
}
