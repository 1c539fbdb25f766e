package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// settings are the flags.
type settings struct {
	seed            uint64
	length          time.Duration
	nodes           int
	release, full   string
	bin, keep, only string
	calm, verbose   bool
	wide, harsh     bool
}

// readFlags reads the flags, and draws values for the others.
func readFlags(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("judge", flag.ContinueOnError)
	self, err := os.Executable()
	if err != nil {
		return s, fmt.Errorf("find the binaries: %w", err)
	}
	flags.Uint64Var(&s.seed, "seed", 0, "decides what happens; 0 is a fresh one")
	flags.DurationVar(&s.length, "for", time.Minute, "how long; a round takes 15 s or more")
	flags.IntVar(&s.nodes, "nodes", 2, "number of nodes")
	flags.StringVar(&s.release, "release", "", "MongoDB's release, 4.4 or 8.0; otherwise by the seed")
	flags.StringVar(&s.full, "full", "", "mongodb.full_document, default or updateLookup; otherwise by the seed")
	flags.StringVar(&s.bin, "bin", filepath.Dir(self), "folder of the binaries streamer and demo")
	flags.StringVar(&s.only, "only", "live,client,owned,grpc,sse,http,file", "kinds of subscribers")
	flags.StringVar(&s.keep, "keep", "", "folder for logs, which is kept")
	flags.BoolVar(&s.calm, "calm", false, "leave the nodes alone")
	flags.BoolVar(&s.wide, "wide", false, "rewind subscribers, take names over, compress event streams, and have a retained log before a small oplog")
	flags.BoolVar(&s.harsh, "harsh", false, "freeze nodes for longer than their leases, lose and damage checkpoints, which are in MongoDB, and refuse resume tokens")
	flags.BoolVar(&s.verbose, "v", false, "say what happens")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.seed == 0 {
		s.seed = rand.Uint64N(1_000_000) + 1
	}
	if s.wide { // the log begins too late for readers that begin with the oldest change
		s.only = strings.ReplaceAll(s.only, "owned", "")
	}
	r := dice(s.seed, "settings", 0)
	if s.release == "" {
		s.release = pick(r, "4.4", "8.0")
	}
	if s.full == "" {
		s.full = pick(r, "updateLookup", "updateLookup", "default")
	}
	return s, nil
}

// dice returns the random numbers of an actor: the same for a seed, whatever others do.
func dice(seed uint64, actor string, i int) *rand.Rand {
	h := uint64(i)
	for _, b := range []byte(actor) {
		h = h*1_000_003 + uint64(b)
	}
	return rand.New(rand.NewPCG(seed, h))
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// upTo returns a random time below most.
func upTo(r *rand.Rand, most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return time.Duration(r.Int64N(int64(most)))
}

// sleep waits, and reports whether the context is still valid.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
