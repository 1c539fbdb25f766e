package plan_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/plan"
)

// A traffic returns how many events a partition has in each second, one after the other.
type traffic func(r *rand.Rand, partition int) func() float64

// poisson draws how many events there are of so many on average.
func poisson(r *rand.Rand, mean float64) float64 {
	if mean > 30 {
		return max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64()))
	}
	n, product := 0.0, r.Float64()
	for limit := math.Exp(-mean); product > limit; n++ {
		product *= r.Float64()
	}
	return n
}

// random is a traffic without a memory.
func random(mean float64) traffic {
	return func(r *rand.Rand, _ int) func() float64 {
		return func() float64 { return poisson(r, mean) }
	}
}

// switching is a traffic that changes between two states, in each of which it stays for so many
// seconds on average.
func switching(mean, quiet, busy, share float64) traffic {
	low := (1 - share) * mean
	high := low + share*mean*(quiet+busy)/busy
	return func(r *rand.Rand, _ int) func() float64 {
		on := r.Float64() < busy/(quiet+busy)
		return func() float64 {
			stays := quiet
			if on {
				stays = busy
			}
			if r.Float64() < 1/stays {
				on = !on
			}
			if on {
				return poisson(r, high)
			}
			return poisson(r, low)
		}
	}
}

// steady is a traffic that is always the same, and not the same in all partitions.
func steady(mean float64) traffic {
	return func(r *rand.Rand, _ int) func() float64 {
		rate := mean * math.Exp(r.NormFloat64()*0.5-0.125)
		return func() float64 { return rate }
	}
}

// A fleet is a cluster whose members do at once what the plan says. Only their events differ.
type fleet struct {
	t      *testing.T
	rand   *rand.Rand
	now    time.Duration
	beat   time.Duration
	state  *plan.Planner
	plan   cluster.Plan
	owners []cluster.Owner
	next   []func() float64 // by partition
	rates  []float64        // by partition, as its owner reports it
	nodes  []string
	turn   int64

	moves    []time.Duration // of the partitions that moved, one after the other
	left     map[string]time.Duration
	returned []string // partitions that came back within an hour
}

func newFleet(t *testing.T, seed uint64, cfg plan.Config, nodes int, of traffic) *fleet {
	f := &fleet{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), now: time.Hour, beat: cfg.WithDefaults().Beat, state: plan.New(cfg),
		owners: make([]cluster.Owner, cfg.Partitions),
		rates:  make([]float64, cfg.Partitions), left: map[string]time.Duration{},
	}
	for i := range nodes {
		f.nodes = append(f.nodes, fmt.Sprintf("node-%02d", i))
	}
	for p := range cfg.Partitions {
		f.next = append(f.next, of(f.rand, p))
	}
	return f
}

// run lets time pass, second by second.
func (f *fleet) run(d time.Duration) {
	f.t.Helper()
	for until := f.now + d; f.now < until; {
		f.now += time.Second
		for p, next := range f.next {
			f.rates[p] += (next() - f.rates[p]) / 5 // as streamer/status smooths it
		}
		if f.turn++; f.now%f.beat == 0 {
			f.step()
		}
	}
}

func (f *fleet) step() {
	f.t.Helper()
	view := cluster.View{Revision: f.turn, Owners: slices.Clone(f.owners), Plan: f.plan, Leader: f.nodes[0]}
	held := map[string][]cluster.HeldPartition{}
	for p, o := range f.owners {
		held[o.Node] = append(held[o.Node], cluster.HeldPartition{Partition: change.Partition(p), Epoch: o.Epoch, Rate: f.rates[p]})
	}
	for _, node := range f.nodes {
		view.Members = append(view.Members, cluster.Member{
			Heartbeat: cluster.Heartbeat{
				Node: node, Process: node, Kind: cluster.KindNode, Status: cluster.StatusHealthy, Count: len(f.owners), Held: held[node],
				Checks: map[string]bool{cluster.CheckMongoDB: true}, StartedAt: time.Unix(1, 0),
			},
			Joined: 1, Beat: f.turn,
		})
	}
	d := f.state.Step(f.now, view)
	if d.Publish == nil {
		return
	}
	f.plan = *d.Publish
	for p, node := range f.plan.Owners {
		before := f.owners[p].Node
		if node == before {
			continue
		}
		f.owners[p] = cluster.Owner{Node: node, Process: node, Epoch: change.Epoch{Incarnation: 1, Revision: uint64(f.turn)}}
		if before == "" {
			continue
		}
		f.rates[p] = 0 // its new owner has yet to see
		f.moves = append(f.moves, f.now)
		if at, was := f.left[fmt.Sprint(p, node)]; was && f.now-at < time.Hour {
			f.returned = append(f.returned, fmt.Sprintf("partition %d to %s after %v", p, node, f.now-at))
		}
		f.left[fmt.Sprint(p, before)] = f.now
	}
}

// most is how many partitions moved in the worst ten minutes after a moment.
func (f *fleet) most(since time.Duration) (n int) {
	for i, from := range f.moves {
		if from < since {
			continue
		}
		k := i
		for k < len(f.moves) && f.moves[k] < from+10*time.Minute {
			k++
		}
		n = max(n, k-i)
	}
	return n
}

// thousand configures a cluster of 1,000 partitions. Of its heartbeats there are few, so that hours
// of it take seconds.
func thousand() plan.Config {
	return plan.Config{Node: "node-00", Partitions: 1000, Expected: 30, TTL: 30 * time.Second, Beat: 6 * time.Second}
}

// Traffic that comes and goes by itself moves next to nothing, whether there is little of it or
// much, and nothing comes back.
func TestRebalancingRestsUnderNoisyTraffic(t *testing.T) { rests(t, thousand(), 1, 40*time.Minute) }

func rests(t *testing.T, cfg plan.Config, seed uint64, lasts time.Duration) {
	traffics := map[string]func(mean float64) traffic{
		"poisson":    random,
		"bursts":     func(mean float64) traffic { return switching(mean, 1990, 10, 0.95) },
		"on and off": func(mean float64) traffic { return switching(mean, 300, 300, 1) },
		"steady":     steady,
	}
	for name, of := range traffics {
		for _, perNode := range []float64{15, 1500} {
			t.Run(fmt.Sprintf("%s, %v events a second, seed %d", name, perNode, seed), func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, seed, cfg, 30, of(perNode*30/1000))
				begun := f.now
				f.run(lasts)
				n := f.most(begun + 10*time.Minute)
				t.Logf("%d moves, at most %d in ten minutes after the first ten", len(f.moves), n)
				if n > 5 {
					t.Errorf("%d moves in ten minutes", n)
				}
				if len(f.returned) > 0 {
					t.Errorf("%d partitions came back, the first: %s", len(f.returned), f.returned[0])
				}
			})
		}
	}
}

// A member whose partitions have twice as many events from some moment on gives some of them up,
// once that has lasted: most at once, the rest within the hour.
func TestDoublingThatLastsIsCorrected(t *testing.T) {
	corrects(t, thousand(), 1, 15, random)
	corrects(t, thousand(), 1, 1500, steady)
}

func corrects(t *testing.T, cfg plan.Config, seed uint64, perNode float64, of func(mean float64) traffic) {
	const floor = 2
	cfg.RebalanceFloor = floor
	t.Run(fmt.Sprintf("%v events a second, seed %d", perNode, seed), func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, seed, cfg, 30, of(perNode*30/1000))
		f.run(10 * time.Minute)
		for p, next := range f.next {
			if f.owners[p].Node == "node-07" {
				f.next[p] = func() float64 { return 2 * next() }
			}
		}
		doubled := len(f.moves)
		f.run(time.Hour)
		events, all := make(map[string]float64), 0.0
		for range 600 { // of ten minutes, so that chance does not count
			for p, next := range f.next {
				n := next() / 600
				events[f.owners[p].Node] += n
				all += n
			}
		}
		share := all / float64(len(f.nodes))
		most := max(1.1*share, share+floor) + 0.1*share // which may be chance
		t.Logf("%d moves; node-07 has %.1f events a second, its share is %.1f", len(f.moves)-doubled, events["node-07"], share)
		for node, n := range events {
			if n > most {
				t.Errorf("%s has %.1f events a second, its share is %.1f", node, n, share)
			}
		}
		if len(f.returned) > 0 {
			t.Errorf("%d partitions came back, the first: %s", len(f.returned), f.returned[0])
		}
		quiet := len(f.moves)
		f.run(10 * time.Minute)
		if n := len(f.moves) - quiet; n > 5 {
			t.Errorf("%d moves more", n)
		}
	})
}
