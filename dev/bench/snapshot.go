package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/client"
)

const (
	// stock is a collection without changes.
	stock = "stock"
	// fastest is the greatest rescan.rate.
	fastest = 10_000_000
	// fewer is the factor by which the collection for the memory comparison is smaller.
	fewer = 10
)

// raceSnapshots lets contenders read whole collections: as fast as they can, a small one as well,
// and at the pace.
func (b *bench) raceSnapshots(ctx context.Context) error {
	reading := func(j *scenario) { j.Snapshot, j.RescanRate = true, fastest }
	find := entry{name: "find", contender: "find"}
	node := with("node", reading)
	if err := b.raceCollection(ctx, "snapshot", b.scale.stock, find, node); err != nil {
		return err
	}
	if err := b.raceCollection(ctx, "snapshot_small", b.scale.stock/fewer, node); err != nil || b.uri != "" {
		return err
	}
	return b.throughDoor(ctx, b.outcomes["snapshot/find"][0], func(uri string) error {
		through := func(e entry) entry {
			adjust := e.adjust
			e.adjust = func(j *scenario) {
				if j.URI = uri; adjust != nil {
					adjust(j)
				}
			}
			return e
		}
		return b.raceCollection(ctx, "snapshot_paced", b.scale.behind, through(find), through(node))
	})
}

// raceCollection lets contenders read a collection one after the other. Each of its documents was
// written once.
func (b *bench) raceCollection(ctx context.Context, group string, documents int, entries ...entry) error {
	for round := range b.scale.rounds {
		data := b.data(documents, 0)
		data.Documents = documents
		if _, err := b.write(ctx, data); err != nil {
			return err
		}
		for _, i := range sequence(round, len(entries)) {
			if err := b.enter(ctx, group, entries[i], b.job(data, 0), nil); err != nil {
				return err
			}
		}
		if err := b.drop(ctx, data); err != nil {
			return err
		}
	}
	return nil
}

// raceScans measures the delay of changes to a subscriber, alone and while another one begins with
// a snapshot, at the default rate.
func (b *bench) raceScans(ctx context.Context) error {
	for round := range b.scale.rounds {
		for _, i := range sequence(round, 2) {
			data := b.data(int(float64(b.scale.sse.rate)*b.scale.scan.Seconds()), b.scale.sse.rate)
			shelf := data
			shelf.Collection = stock
			shelf.Events = b.scale.shelf
			shelf.Documents = b.scale.shelf
			shelf.Rate = 0
			if _, err := b.write(ctx, shelf); err != nil {
				return err
			}
			during := func() error {
				_, err := b.write(ctx, data)
				return err
			}
			e := []entry{{name: "alone", contender: "grpc", node: true}, {name: "scanned", contender: "scanned", node: true}}[i]
			e.adjust = func(j *scenario) { j.Delays, j.RescanRate = true, b.scale.rescan }
			if err := errors.Join(b.enter(ctx, "live", e, b.job(data, 0), during), b.drop(ctx, data)); err != nil {
				return err
			}
		}
	}
	return nil
}

// finder reads a collection with one find.
type finder struct {
	connection

	round  *round
	cursor *mongo.Cursor
}

var _ contender = (*finder)(nil)

// Open implements Contender.
func (f *finder) Open(ctx context.Context, round *round) (err error) {
	f.round = round
	if err := f.connect(ctx, round.URI); err != nil {
		return err
	}
	round.begin()
	if f.cursor, err = f.client.Database(round.DB).Collection(collection).Find(ctx, bson.D{}); err != nil {
		return fmt.Errorf("find documents: %w", err)
	}
	return nil
}

// Read implements Contender.
func (f *finder) Read(ctx context.Context) error {
	for check := f.round.check; !check.done(); {
		if !f.cursor.Next(ctx) {
			return errors.Join(errors.New("the collection has ended"), f.cursor.Err())
		}
		f.round.bytes += len(f.cursor.Current)
		check.event(f.cursor.Current, time.Now())
	}
	return nil
}

// scanned is a subscriber that runs while another one begins with a snapshot of another collection.
type scanned struct {
	subscriber

	documents atomic.Int64
	done      atomic.Bool // the snapshot is complete
	other     *clientRun
}

var _ contender = (*scanned)(nil)

// Open implements Contender.
func (s *scanned) Open(ctx context.Context, round *round) error {
	begun := make(chan struct{})
	c, err := client.New(client.Config{
		Logger:    slog.New(slog.DiscardHandler),
		Addresses: []string{round.Node.GRPC}, Subscriber: "scan", Start: client.StartSnapshot,
		OnNotice: func(_ context.Context, n client.Notice) error {
			if _, done := n.(client.SnapshotDone); done {
				s.done.Store(true)
			}
			return nil
		},
	})
	if err == nil {
		err = c.Subscribe(client.Subscription{ID: stock, DB: round.DB, Coll: stock}, func(_ context.Context, c client.Change) error {
			if c.Snapshot && s.documents.Add(1) == 1 {
				close(begun)
			}
			return nil
		})
	}
	if err != nil {
		return err
	}
	s.other = runClient(ctx, c)
	if err := s.other.await(ctx, begun); err != nil {
		return fmt.Errorf("begin a snapshot: %w", err)
	}
	return s.subscriber.Open(ctx, round)
}

// Read implements Contender.
func (s *scanned) Read(ctx context.Context) error {
	before := s.documents.Load()
	if err := s.subscriber.Read(ctx); err != nil {
		return err
	}
	read := s.documents.Load() - before
	s.round.record("documents_read", float64(read))
	if read == 0 || s.done.Load() {
		return fmt.Errorf("the snapshot was not under way: %d documents, complete: %t", read, s.done.Load())
	}
	return nil
}

// Close implements Contender.
func (s *scanned) Close() error {
	s.other.stop()
	return s.subscriber.Close()
}

func (b *bench) snapshotVsFind() metric {
	paced := b.uri == ""
	keys := []string{"snapshot/node", "snapshot/find"}
	if paced {
		keys = append(keys, "snapshot_paced/node", "snapshot_paced/find")
	}
	f := b.from("documents/s of a snapshot for one subscriber ÷ documents/s of a find over the same collection, unpaced", keys...)
	return f.done(func() (float64, []target) {
		ratio := f.rate("snapshot/node", "snapshot/find")
		if find, node := f.of("snapshot/find"), f.of("snapshot/node"); node.ServerCPU != nil && node.ClientCPU != nil {
			micros := find.CPU.Median + node.ClientCPU.Median + node.ServerCPU.Median
			f.Values["limit"] = float64(runtime.NumCPU()) * 1e6 / micros / find.EventsPerSecond.Median
		}
		targets := []target{atLeast("documents/s", ratio, 0.8)}
		if paced {
			targets = append(targets, atLeast("documents/s, paced", f.rate("snapshot_paced/node", "snapshot_paced/find"), 0.95))
		}
		return ratio, targets
	})
}

func (b *bench) snapshotLiveP99() metric {
	f := b.from(fmt.Sprintf("p99 of a subscriber while the node reads documents for another one at the default rate ÷ p99 without, at %d events/s", b.scale.sse.rate),
		"live/scanned", "live/alone")
	return f.done(func() (float64, []target) {
		scanned, alone := f.of("live/scanned"), f.of("live/alone")
		f.Values["p99_ms"] = scanned.P99.Median
		f.Values["p99_ms_alone"] = alone.P99.Median
		f.Values["documents_read"] = scanned.Values["documents_read"].Median
		ratio := ratioOf(*scanned.P99, *alone.P99)
		return ratio, []target{atMost("p99", ratio, 2)}
	})
}

func (b *bench) snapshotRSS() metric {
	const large, small = "snapshot/node", "snapshot_small/node"
	f := b.from(fmt.Sprintf("MiB resident at most in a snapshot of %d documents ÷ in one of %d", b.scale.stock, b.scale.stock/fewer), large, small)
	return f.done(func() (float64, []target) {
		f.Values["mib"] = f.of(large).RSS.Median
		f.Values["mib_small"] = f.of(small).RSS.Median
		ratio := ratioOf(f.of(large).RSS, f.of(small).RSS)
		return ratio, []target{atMost("MiB", ratio, 1.25)}
	})
}
