package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/dev/workload"
	"github.com/mongostream/streamer/internal/retry"
)

// snapshotDone begins the line of a replica's journal that says that the snapshot is complete.
const snapshotDone = "snapshot done"

// runSnapshot loads documents, has a subscriber begin with them while they are changed, and
// compares what it has with the collection.
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
	if d.nodes > 1 { // the subscriber waits for a single one
		_, err = f.settled(starting, nil)
	}
	if err != nil {
		return errors.Join(err, f.close())
	}
	addresses, _ := f.addresses()
	r := &replica{journal: filepath.Join(p.dir, "replica"), node: node{id: "subscriber", arguments: []string{"subscriber"}, notes: d.notes}}
	r.environment = []string{
		"DEMO_JOURNAL=" + r.journal, "DEMO_ADDRESSES=" + strings.Join(addresses, ","), "DEMO_BEGUN=" + time.Now().Format(time.RFC3339Nano),
	}
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
	err = errors.Join(writer.Run(writing), trouble.Wait())
	d.faults = append(d.faults, r.killed...)
	background := context.WithoutCancel(ctx)
	s, compared := r.compare(background, cfg)
	err = errors.Join(err, compared, r.end(syscall.SIGTERM), f.close())
	s.Documents, s.Written, s.Nodes, s.Partitions, s.Faults = d.documents, d.ledger.Written(), d.nodes, d.partitions, d.faults
	if d.json {
		err = errors.Join(err, json.NewEncoder(d.out).Encode(s))
	} else {
		fmt.Fprintf(d.out, "%d documents, %d changes written; the subscriber had the documents after %.1f s: %d missing, %d stale, %d resurrected\n",
			s.Documents, s.Written-s.Documents, s.Complete, s.Missing, s.Stale, s.Resurrected)
	}
	if s.Differences != (workload.Differences{}) {
		err = errors.Join(err, fmt.Errorf("the subscriber differs from the collection: %+v", s.Differences))
	}
	return err
}

// A snapshotSummary is what -o json prints with -snapshot.
type snapshotSummary struct {
	workload.Differences

	Documents  int      `json:"documents"` // before the subscriber began
	Written    int      `json:"written"`   // with them
	Complete   float64  `json:"complete_s"`
	Partitions int      `json:"partitions"`
	Nodes      int      `json:"nodes"`
	Faults     []mishap `json:"faults,omitempty"`
}

// A replica is a subscriber in a process of its own, which keeps a journal of what it is sent.
type replica struct {
	node

	journal string
	killed  []mishap
}

// chaos kills the subscriber and starts it again, until the context ends.
func (r *replica) chaos(ctx context.Context) error {
	for begun := time.Now(); ; {
		_ = retry.Sleep(ctx, time.Second+time.Duration(rand.Int64N(int64(2*time.Second))))
		if ctx.Err() != nil {
			return nil
		}
		at := time.Now()
		if err := r.end(syscall.SIGKILL); err != nil {
			return err
		}
		size := r.size() // it begins with a line that ends the last one
		if err := r.start(); err != nil {
			return err
		}
		for look := at; r.size() <= size+1 && look.Sub(at) < settleTimeout; look = time.Now() {
			_ = retry.Sleep(context.WithoutCancel(ctx), 20*time.Millisecond)
		}
		r.killed = append(r.killed, mishap{Kind: killed, Node: r.id, AtSeconds: at.Sub(begun).Seconds(), Recovery: time.Since(at).Seconds()})
		fmt.Fprintf(r.notes, "chaos: %-22s %s; got something after %.2f s\n", killed, r.id, time.Since(at).Seconds())
	}
}

func (r *replica) size() int64 {
	info, err := os.Stat(r.journal)
	if err != nil {
		return 0
	}
	return info.Size()
}

// compare waits until the replica equals the collection, which nobody changes any more, and returns
// how it differs from it.
func (r *replica) compare(ctx context.Context, cfg workload.Config) (s snapshotSummary, err error) {
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	grown, size := time.Now(), int64(-1)
	for {
		if now := r.size(); now != size {
			grown, size = time.Now(), now
		}
		journal, err := os.ReadFile(r.journal)
		if err != nil {
			return s, fmt.Errorf("read what the subscriber has: %w", err)
		}
		has, err := workload.Replay(bytes.NewReader(journal))
		if err != nil {
			return s, err
		}
		if s.Differences, err = has.Compare(ctx, cfg); err != nil {
			return s, err
		}
		_, after, done := bytes.Cut(journal, []byte(snapshotDone))
		if done {
			_, _ = fmt.Sscanf(string(after), " after %f", &s.Complete)
		}
		if done && s.Differences == (workload.Differences{}) {
			return s, nil
		}
		if time.Since(grown) > settleTimeout {
			if !done {
				return s, errors.New("the snapshot does not end")
			}
			return s, nil
		}
		<-look.C
	}
}

// subscriberCommand runs the subscriber of a replica, configured by the environment. What is
// acknowledged has been written to its journal.
func subscriberCommand(ctx context.Context) error {
	journal, err := os.OpenFile(os.Getenv("DEMO_JOURNAL"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the demo has named it
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	defer journal.Close()                                //nolint:errcheck // every write has been checked
	if _, err := journal.WriteString("\n"); err != nil { // ends what a killed one has left unfinished
		return fmt.Errorf("write journal: %w", err)
	}
	begun := time.Now()
	if text := os.Getenv("DEMO_BEGUN"); text != "" {
		if err := begun.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("read DEMO_BEGUN: %w", err)
		}
	}
	var mu sync.Mutex
	var line []byte
	c, err := client.New(client.Config{
		Addresses: strings.Split(os.Getenv("DEMO_ADDRESSES"), ","), Subscriber: "replica", Start: client.StartSnapshot,
		OnNotice: func(_ context.Context, n client.Notice) error {
			switch n := n.(type) {
			case client.Resync:
				return fmt.Errorf("the subscriber was told of a loss: %+v", n)
			case client.SnapshotDone:
				_, err := fmt.Fprintf(journal, "%s after %.1f s\n", snapshotDone, time.Since(begun).Seconds())
				return err
			}
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("make the subscriber: %w", err)
	}
	if err := c.Subscribe(client.Subscription{ID: "replica", DB: "demo", Coll: "orders", Format: client.JSON}, func(_ context.Context, c client.Change) (err error) {
		mu.Lock()
		defer mu.Unlock()
		if line, err = workload.AppendJSON(line[:0], c.Data); err == nil {
			_, err = journal.Write(line)
		}
		return err
	}); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return c.Run(ctx)
}
