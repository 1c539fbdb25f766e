package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/mongostream/streamer/internal/retry"
)

// A mishap is something that befell a node, and how long it took until every partition that it had
// was served again by somebody.
type mishap struct {
	Kind       string  `json:"kind"`
	Node       string  `json:"node"`
	Partitions int     `json:"partitions"` // that it had
	AtSeconds  float64 `json:"at_s"`       // since the demo began to write
	Recovery   float64 `json:"recovery_s"`
}

// The kinds.
const (
	killed    = "kill -9"
	frozen    = "frozen past its lease"
	restarted = "restarted"
)

// chaos lets mishaps befall the nodes, one after the other, until the context ends; the one that is
// under way then is waited for.
func (d *demo) chaos(ctx context.Context, f *fleet) ([]mishap, error) {
	seed := time.Now().UnixNano()
	d.news.tell("chaos: seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	kinds := []string{killed, frozen, restarted}
	begun := time.Now()
	var all []mishap
	patient := context.WithoutCancel(ctx)
	for i := 0; ctx.Err() == nil; i++ {
		if i%len(kinds) == 0 {
			random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		}
		victim, before, err := f.victim(patient, random)
		if err != nil {
			return all, err
		}
		m := mishap{Kind: kinds[i%len(kinds)], Node: victim.id, Partitions: len(before), AtSeconds: time.Since(begun).Seconds()}
		at := time.Now()
		again, err := befall(victim, m.Kind)
		if err != nil {
			return all, err
		}
		waiting, cancel := context.WithTimeout(patient, 10*leaseTTL)
		_, err = f.settled(waiting, before)
		cancel()
		m.Recovery = time.Since(at).Seconds()
		all = append(all, m)
		d.news.tell("chaos: %-22s %s with %d partitions; served again after %.2f s", m.Kind, m.Node, m.Partitions, m.Recovery)
		if err != nil {
			err = fmt.Errorf("%s, %s: %w", m.Node, m.Kind, err)
		}
		if err := errors.Join(err, again()); err != nil { // a hanging one would never end
			return all, err
		}
		_ = retry.Sleep(ctx, time.Second+time.Duration(random.Int64N(int64(time.Second))))
	}
	return all, nil
}

// befall does it, and returns what brings the node back.
func befall(n *node, kind string) (again func() error, err error) {
	switch kind {
	case killed:
		return n.start, n.end(syscall.SIGKILL)
	case frozen:
		return func() error { return n.signal(syscall.SIGCONT) }, n.signal(syscall.SIGSTOP)
	default:
		return n.start, n.end(syscall.SIGTERM)
	}
}
