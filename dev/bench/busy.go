package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/internal/config"
)

const (
	// million is the number of documents for which the duration of a snapshot is reported.
	million = 1_000_000
	// busyInterval is between two changes of a busy collection.
	busyInterval = 2 * time.Millisecond
)

// raceBusy reads a collection that changes all the time, at the default rate, for about the time of
// a scan.
func (b *bench) raceBusy(ctx context.Context) error {
	rescan, err := b.rescanning()
	if err != nil {
		return err
	}
	documents := atOnce(rescan) + int(float64(rescan.Rate)*b.scale.scan.Seconds())
	e := entry{name: "node", contender: "busy", node: true, adjust: func(j *scenario) { j.Snapshot, j.RescanRate = true, b.scale.rescan }}
	return b.raceCollection(ctx, "busy", documents, e)
}

// atOnce returns how many documents a node reads before the rate limits it: the first page, and one
// more as soon as the rate allows its first document.
func atOnce(rescan config.Rescan) int { return 2 * rescan.Page() }

// rescanning returns a node's settings for reading documents.
func (b *bench) rescanning() (config.Rescan, error) {
	cfg, err := config.Load("", nodeSettings(&scenario{URI: b.logURI, Etcd: b.etcdAddress, Name: "rate", DB: "rate", Partitions: partitions}, "rate", "127.0.0.1:0"))
	if err != nil {
		return cfg.Rescan, fmt.Errorf("load the default configuration: %w", err)
	}
	cfg.Rescan.Rate = cmp.Or(b.scale.rescan, cfg.Rescan.Rate)
	return cfg.Rescan, nil
}

// busy is a subscriber that begins with a snapshot of a busy collection: a writer keeps changing
// one document and, in turn, each of the others.
type busy struct {
	subscriber

	writer  connection
	stop    context.CancelFunc
	written chan struct{} // closed when nothing more is changed
	changes int
	err     error
}

var _ contender = (*busy)(nil)

// Open implements Contender.
func (b *busy) Open(ctx context.Context, round *round) error {
	if err := b.writer.connect(ctx, round.URI); err != nil {
		return err
	}
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	b.written = make(chan struct{})
	go func() {
		defer close(b.written)
		b.err = b.write(writing, round)
	}()
	return b.subscriber.Open(ctx, round)
}

// write changes documents until the context ends.
func (b *busy) write(ctx context.Context, round *round) error {
	tick := time.NewTicker(busyInterval)
	defer tick.Stop()
	documents := b.writer.client.Database(round.DB).Collection(collection)
	change := bson.D{{Key: "$inc", Value: bson.D{{Key: "busy", Value: 1}}}}
	for n := 0; ; n++ {
		for _, id := range []int{1, n%round.Documents + 1} {
			_, err := documents.UpdateOne(ctx, bson.D{{Key: "_id", Value: int64(id)}}, change)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				return fmt.Errorf("change document %d: %w", id, err)
			}
			b.changes++
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Read implements Contender.
func (b *busy) Read(ctx context.Context) error {
	if err := b.subscriber.Read(ctx); err != nil {
		return err
	}
	b.round.stop()
	b.end()
	b.round.record("changes", float64(b.changes))
	if b.changes == 0 && b.err == nil {
		return errors.New("nothing was changed meanwhile")
	}
	return b.err
}

// end ends the changes.
func (b *busy) end() {
	if b.stop != nil {
		b.stop()
		<-b.written
	}
}

// Close implements Contender.
func (b *busy) Close() error {
	b.end()
	return errors.Join(b.subscriber.Close(), b.writer.Close())
}

func (b *bench) snapshotBusy() metric {
	const key = "busy/node"
	f := b.from("documents/s of a snapshot at the default rate, of a collection that changes all the time, after the first two pages ÷ rescan.rate", key)
	rescan, err := b.rescanning()
	if err != nil && f.Void == "" {
		f.Void = err.Error()
	}
	return f.done(func() (float64, []target) {
		documents := float64(f.of(key).Events)
		first := float64(atOnce(rescan))
		took := documents / f.of(key).EventsPerSecond.Median
		read := (documents - first) / took
		f.Values["documents"] = documents
		f.Values["changes"] = f.of(key).Values["changes"].Median
		f.Values["million_s"] = (million - first) / read
		f.Values["million_s_by_rate"] = (million - first) / float64(rescan.Rate)
		ratio := read / float64(rescan.Rate)
		return ratio, []target{atLeast("documents/s", ratio, 0.95)}
	})
}
