package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/dev/workload"
	"github.com/mongostream/streamer/internal/retry"
)

// runSnapshot loads documents, has subscribers begin with them while they are changed, and compares
// what each of them has with the collection.
func (d *demo) runSnapshot(ctx context.Context, p *parts) error {
	cfg := workload.Config{URI: p.mongo.URI(), Rate: d.rate}
	writer := workload.NewWriter(cfg, &d.ledger)
	if err := writer.Load(ctx, d.documents); err != nil {
		return err
	}
	f, err := d.newFleet(ctx, p)
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if d.nodes > 1 { // the subscribers wait for a single one
		_, err = f.settled(starting, nil)
	}
	if err != nil {
		return errors.Join(err, f.close())
	}
	r := d.newReplicas(p, f)
	if err := r.start(); err != nil {
		return errors.Join(err, f.close())
	}
	writing := ctx
	if d.length > 0 {
		writing, cancel = context.WithTimeout(ctx, d.length)
		defer cancel()
	}
	var trouble errgroup.Group
	if d.mishaps {
		trouble.Go(func() (err error) {
			d.faults, err = d.chaos(writing, f)
			return err
		})
		trouble.Go(func() error { return r.chaos(writing) })
	}
	if d.handoffs > 0 {
		trouble.Go(func() (err error) {
			d.moved, err = d.moves(writing, f, d.handoffs)
			return err
		})
	}
	err = errors.Join(writer.Run(writing), trouble.Wait())
	d.faults = append(d.faults, r.killed...)
	background := context.WithoutCancel(ctx)
	s, compared := r.compare(background, cfg)
	err = errors.Join(err, compared, r.end(syscall.SIGTERM), f.close())
	return errors.Join(err, d.judgeSnapshot(s))
}

// judgeSnapshot prints the summary, and says what went wrong.
func (d *demo) judgeSnapshot(s snapshotSummary) (err error) {
	s.Documents, s.Written, s.Nodes, s.Partitions, s.Faults, s.Handoffs = d.documents, d.ledger.Written(), d.nodes, d.partitions, d.faults, len(d.moved)
	if d.json {
		err = json.NewEncoder(d.out).Encode(s)
	} else {
		who := "the subscriber"
		if s.Subscribers > 1 {
			who = fmt.Sprintf("the last of %d subscribers", s.Subscribers)
		}
		fmt.Fprintf(d.out, "%d documents, %d changes written; %s had the documents after %.1f s: %d missing, %d stale, %d resurrected, %d left wrongly\n",
			s.Documents, s.Written-s.Documents, who, s.Complete, s.Missing, s.Stale, s.Resurrected, s.LeftWrongly)
	}
	if s.Differences != (workload.Differences{}) {
		err = errors.Join(err, fmt.Errorf("subscribers differ from the collection: %+v", s.Differences))
	}
	return err
}

// A snapshotSummary is what -o json prints with -snapshot.
type snapshotSummary struct {
	workload.Differences // of all subscribers together

	Documents   int      `json:"documents"` // before subscribers began
	Written     int      `json:"written"`   // with them
	Subscribers int      `json:"subscribers"`
	Complete    float64  `json:"complete_s"` // when the last one had the documents
	Partitions  int      `json:"partitions"`
	Nodes       int      `json:"nodes"`
	Faults      []mishap `json:"faults,omitempty"`
	Handoffs    int      `json:"handoffs,omitempty"`
}

// A replicas is the subscribers, in a process of their own, each with a journal of what it is sent.
type replicas struct {
	node

	journals []*journal
	killed   []mishap
}

// A journal is what a subscriber has been sent, as far as it was read.
type journal struct {
	path      string
	joiner    *joiner
	read      int64
	has       workload.Replica
	completed float64 // when it had the documents, in seconds; 0: not yet
}

// newReplicas returns the subscribers: one that takes everything, and those that join it.
func (d *demo) newReplicas(p *parts, f *fleet) *replicas {
	addresses, sites := f.addresses()
	r := &replicas{node: node{id: "subscriber", arguments: []string{"subscriber"}, notes: d.notes}}
	for i := range 1 + d.gateways {
		path := filepath.Join(p.dir, fmt.Sprintf("replica-%d", i))
		r.journals = append(r.journals, &journal{path: path, joiner: newJoiner(i, path), has: make(workload.Replica)})
	}
	r.environment = []string{
		"DEMO_JOURNALS=" + filepath.Join(p.dir, "replica-"), fmt.Sprintf("DEMO_SUBSCRIBERS=%d", len(r.journals)),
		"DEMO_ADDRESSES=" + strings.Join(addresses, ","), "DEMO_SITES=" + strings.Join(sites, ","),
		"DEMO_BEGUN=" + time.Now().Format(time.RFC3339Nano), "DEMO_LENGTH=" + d.length.String(),
	}
	return r
}

// chaos kills the subscribers and starts them again, until the context ends.
func (r *replicas) chaos(ctx context.Context) error {
	for begun := time.Now(); ; {
		_ = retry.Sleep(ctx, time.Second+time.Duration(rand.Int64N(int64(2*time.Second))))
		if ctx.Err() != nil {
			return nil
		}
		at := time.Now()
		if err := r.end(syscall.SIGKILL); err != nil {
			return err
		}
		size := r.size()
		if err := r.start(); err != nil {
			return err
		}
		marks := int64(len(r.journals)) // each begins with a line that ends the last one
		for look := at; r.size() <= size+marks && look.Sub(at) < settleTimeout; look = time.Now() {
			_ = retry.Sleep(context.WithoutCancel(ctx), 20*time.Millisecond)
		}
		r.killed = append(r.killed, mishap{Kind: killed, Node: r.id, AtSeconds: at.Sub(begun).Seconds(), Recovery: time.Since(at).Seconds()})
		fmt.Fprintf(r.notes, "chaos: %-22s %s; got something after %.2f s\n", killed, r.id, time.Since(at).Seconds())
	}
}

// size returns that of all journals together.
func (r *replicas) size() (total int64) {
	for _, j := range r.journals {
		if info, err := os.Stat(j.path); err == nil {
			total += info.Size()
		}
	}
	return total
}

// compare waits until every replica equals the collection, which nobody changes any more, and
// returns how they differ from it.
func (r *replicas) compare(ctx context.Context, cfg workload.Config) (s snapshotSummary, err error) {
	documents, err := workload.Load(ctx, cfg)
	if err != nil {
		return s, err
	}
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for grown := time.Now(); ; <-look.C {
		s = snapshotSummary{Subscribers: len(r.journals)}
		var loading, different []string
		for _, j := range r.journals {
			some, err := j.follow()
			if err != nil {
				return s, err
			}
			if some {
				grown = time.Now()
			}
			if s.Complete = max(s.Complete, j.completed); j.completed == 0 {
				loading = append(loading, j.joiner.name)
			}
			if d := j.has.Compare(documents, j.joiner.Selection); d != (workload.Differences{}) {
				different = append(different, fmt.Sprintf("%s %+v", j.joiner, d))
				s.Add(d)
			}
		}
		switch {
		case len(loading)+len(different) == 0:
			return s, nil
		case time.Since(grown) <= settleTimeout:
		case len(loading) > 0:
			return s, fmt.Errorf("the snapshots of %s do not end", strings.Join(loading, ", "))
		default:
			for _, text := range different {
				fmt.Fprintln(r.notes, text)
			}
			return s, nil
		}
	}
}

// follow reads what has come since the last time, and reports whether something has.
func (j *journal) follow() (some bool, err error) {
	file, err := os.Open(j.path)
	if errors.Is(err, os.ErrNotExist) { // it has yet to join
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open journal: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	if _, err := file.Seek(j.read, io.SeekStart); err != nil {
		return false, fmt.Errorf("read journal: %w", err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return false, fmt.Errorf("read journal: %w", err)
	}
	n := j.has.Apply(text)
	j.read += int64(n)
	if _, after, done := strings.Cut(string(text[:n]), snapshotDone); done && j.completed == 0 {
		_, _ = fmt.Sscanf(after, " after %f", &j.completed)
	}
	return n > 0, nil
}
