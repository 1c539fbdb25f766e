package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/internal/retry"
)

// A move is a partition that went from one living node to another.
type move struct {
	Partition change.Partition `json:"partition"`
	From      string           `json:"from"`
	To        string           `json:"to"`
	Seconds   float64          `json:"took_s"` // from the wish until the other node said that it serves it
	Gap       float64          `json:"gap_ms"` // the longest that a change of it took meanwhile, from its writing to a gateway's handler
}

// gaps watches how long changes of single partitions take.
type gaps struct {
	mu      sync.Mutex
	longest map[change.Partition]time.Duration
}

// begin watches a partition that is not watched yet, of so many.
func (g *gaps) begin(partitions int) change.Partition {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.longest == nil {
		g.longest = make(map[change.Partition]time.Duration)
	}
	for {
		p := change.Partition(rand.IntN(partitions))
		if _, watched := g.longest[p]; !watched || len(g.longest) == partitions {
			g.longest[p] = 0
			return p
		}
	}
}

// end watches it no longer, and returns the longest time.
func (g *gaps) end(p change.Partition) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer delete(g.longest, p)
	return g.longest[p]
}

// took notes how long a change has taken.
func (g *gaps) took(p change.Partition, latency time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if longest, watched := g.longest[p]; watched && latency > longest {
		g.longest[p] = latency
	}
}

const (
	// moveTimeout bounds how long a partition may take to move.
	moveTimeout = time.Minute
	// overlap is how long the donor of a partition keeps delivering: changes in that time belong to
	// the move.
	overlap = time.Second
)

// moves has n partitions move to other nodes, as an operator would, spread over the time until the
// context ends.
func (d *demo) moves(ctx context.Context, f *fleet, n int) ([]move, error) {
	var mu sync.Mutex
	var all []move
	g, patient := errgroup.WithContext(context.WithoutCancel(ctx))
	pace := time.NewTicker(d.length / time.Duration(n+1))
	defer pace.Stop()
	for i := 0; i < n && ctx.Err() == nil; i++ {
		g.Go(func() error {
			m, err := d.move(patient, f)
			if err != nil {
				return err
			}
			d.news.tell("handoff: partition %2d from %s to %s in %.2f s; a change of it took %.1f ms at most", m.Partition, m.From, m.To, m.Seconds, m.Gap)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, m)
			return nil
		})
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
	err := g.Wait()
	if err == nil && len(all) < n {
		err = fmt.Errorf("only %d of %d handoffs could be made in the time", len(all), n)
	}
	return all, err
}

// move has some partition move to some other node.
func (d *demo) move(ctx context.Context, f *fleet) (move, error) {
	view, err := f.roster.View(ctx)
	if err != nil {
		return move{}, err
	}
	p := d.gaps.begin(len(view.Owners))
	others := slices.DeleteFunc(slices.Clone(f.nodes), func(n *node) bool { return n.id == view.Owners[p].Node })
	m := move{Partition: p, From: view.Owners[p].Node, To: others[rand.IntN(len(others))].id}
	wish := cluster.Pin{To: m.To, By: "demo", At: time.Now()}
	begun := time.Now()
	if err := f.roster.Pin(ctx, p, wish, moveTimeout); err != nil {
		return m, fmt.Errorf("wish for partition %d to move: %w", p, err)
	}
	moving, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	err = f.until(moving, func(view cluster.View) bool { return view.Owners[p].Node == m.To && reported(view, p) })
	m.Seconds = time.Since(begun).Seconds()
	_ = retry.Sleep(ctx, overlap)
	m.Gap = float64(d.gaps.end(p).Microseconds()) / 1000
	return m, errors.Join(err, f.roster.Unpin(ctx, p, wish))
}

// gapP99 returns the gap that 99 of 100 moves stay below, 0 without any.
func gapP99(moves []move) float64 {
	if len(moves) == 0 {
		return 0
	}
	gaps := make([]float64, len(moves))
	for i, m := range moves {
		gaps[i] = m.Gap
	}
	slices.Sort(gaps)
	return gaps[int(math.Ceil(0.99*float64(len(gaps))))-1]
}
