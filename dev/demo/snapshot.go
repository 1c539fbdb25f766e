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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/dev/workload"
	"github.com/mongostream/streamer/internal/retry"
)

// runSnapshot loads documents, lets subscribers begin with them while they change, and compares the
// documents of each with the collection.
func (d *demo) runSnapshot(ctx context.Context, p *parts) error {
	cfg := workload.Config{URI: p.mongo.URI(), Rate: d.rate}
	writer := workload.NewWriter(cfg, &d.ledger)
	if err := d.load(ctx, writer); err != nil {
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
	d.addresses, d.sites = f.addresses()
	d.announce()
	r := d.newReplicas(p, f)
	if err := r.start(); err != nil {
		return errors.Join(err, f.close())
	}
	showing, shown := context.WithCancel(ctx)
	defer shown()
	show := d.watchReplicas(showing, r)
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
	shown()
	show()
	err = errors.Join(err, compared, r.end(syscall.SIGTERM), f.close())
	return errors.Join(err, d.judgeSnapshot(s))
}

// load loads the orders, and shows how far it is.
func (d *demo) load(ctx context.Context, writer *workload.Writer) error {
	loading, loaded := context.WithCancel(ctx)
	defer loaded()
	show := d.show(loading, d.ledger.Written, d.loading)
	err := writer.Load(ctx, d.documents)
	loaded()
	show()
	return err
}

// loading shows how many orders are loaded.
func (d *demo) loading(int) screen {
	return screen{title: d.title(), facts: []string{fmt.Sprintf("loading %s of %s orders", thousands(d.ledger.Written()), thousands(d.documents))}}
}

// watchReplicas shows how far the subscribers are, until the context ends.
func (d *demo) watchReplicas(ctx context.Context, r *replicas) (wait func()) {
	return d.show(ctx, d.ledger.Written, func(width int) screen {
		rows := [][]string{{"subscriber", "orders", "snapshot"}}
		complete := 0
		for _, j := range r.journals {
			orders, completed := j.progress()
			state := "loading"
			if completed > 0 {
				state = fmt.Sprintf("done after %.1f s", completed)
				complete++
			}
			rows = append(rows, []string{j.joiner.name, thousands(orders), state})
		}
		s := screen{title: d.title(), address: d.address(), facts: []string{
			thousands(d.documents) + " orders loaded", thousands(d.ledger.Written()-d.documents) + " changes since",
			fmt.Sprintf("%d of %d subscribers have the orders", complete, len(r.journals)),
		}}
		if width > 0 {
			s.body = append(table(rows, width), d.news.newest()...)
		}
		return s
	})
}

// judgeSnapshot prints the summary, and says what went wrong.
func (d *demo) judgeSnapshot(s snapshotSummary) (err error) {
	s.Documents = d.documents
	s.Written = d.ledger.Written()
	s.Nodes = d.nodes
	s.Partitions = d.partitions
	s.Faults = d.faults
	s.Handoffs = len(d.moved)
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

// A replicas is the set of subscribers, in a separate process, each with a journal of its events.
type replicas struct {
	node

	journals []*journal
	killed   []mishap
	news     *teller
}

// A journal is the file of a subscriber's events, as far as it was read.
type journal struct {
	path   string
	joiner *joiner

	mu        sync.Mutex // guards the rest
	read      int64
	has       workload.Replica
	completed float64 // when it had the documents, in seconds; 0: not yet
}

// newReplicas returns the subscribers: one that takes everything, and those that join it.
func (d *demo) newReplicas(p *parts, f *fleet) *replicas {
	addresses, sites := f.addresses()
	r := &replicas{news: d.news, node: node{id: "subscriber", arguments: []string{"subscriber"}, notes: d.log}}
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
		r.news.tell("chaos: %-22s %s; got something after %.2f s", killed, r.id, time.Since(at).Seconds())
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

// compare waits until every replica equals the collection, which has stopped changing, and returns
// the differences.
func (r *replicas) compare(ctx context.Context, cfg workload.Config) (s snapshotSummary, err error) {
	documents, err := workload.Load(ctx, cfg)
	if err != nil {
		return s, err
	}
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	read := int64(0)
	for grown := time.Now(); ; <-look.C {
		before := read
		read = 0
		s = snapshotSummary{Subscribers: len(r.journals)}
		var loading, different []string
		for _, j := range r.journals {
			c, err := j.compare(documents)
			if err != nil {
				return s, err
			}
			read += c.read
			if s.Complete = max(s.Complete, c.completed); c.completed == 0 {
				loading = append(loading, j.joiner.name)
			}
			if c.Differences != (workload.Differences{}) {
				different = append(different, fmt.Sprintf("%s %+v", j.joiner, c.Differences))
				s.Add(c.Differences)
			}
		}
		if read != before {
			grown = time.Now()
		}
		switch {
		case len(loading)+len(different) == 0:
			return s, nil
		case time.Since(grown) <= settleTimeout:
		case len(loading) > 0:
			return s, fmt.Errorf("the snapshots of %s do not end", strings.Join(loading, ", "))
		default:
			for _, text := range different {
				r.news.tell("%s", text)
			}
			return s, nil
		}
	}
}

// progress reads the journal, and returns how many orders the subscriber has, and when it had all.
func (j *journal) progress() (orders int, completed float64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.follow() // compare returns the error
	return len(j.has), j.completed
}

// compare reads the journal, and compares the subscriber's documents with the orders.
func (j *journal) compare(documents workload.Replica) (c comparison, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.follow(); err != nil {
		return c, err
	}
	return comparison{j.has.Compare(documents, j.joiner.Selection), j.completed, j.read}, nil
}

// A comparison is how a subscriber differs from the collection, when it had all orders, and how
// much of its journal was read.
type comparison struct {
	workload.Differences

	completed float64
	read      int64
}

// follow reads the new part of the journal. The caller holds the mutex.
func (j *journal) follow() error {
	file, err := os.Open(j.path)
	if errors.Is(err, os.ErrNotExist) { // it has yet to join
		return nil
	}
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	if _, err := file.Seek(j.read, io.SeekStart); err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	n := j.has.Apply(text)
	j.read += int64(n)
	if _, after, done := strings.Cut(string(text[:n]), snapshotDone); done && j.completed == 0 {
		_, _ = fmt.Sscanf(after, " after %f", &j.completed)
	}
	return nil
}
