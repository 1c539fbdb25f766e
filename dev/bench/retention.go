package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/client"
)

const (
	// retentionInterval is the least retention.interval: the rest of the changes is a segment soon.
	retentionInterval = time.Second
	// rarePercent is the share of the changes that are of the collection rare.
	rarePercent = 3
	// fillers and fillerBytes are changes that take the whole ring of the tail, so that nobody
	// finds earlier ones there.
	fillers, fillerBytes = 15_000, 4 << 10
)

// raceRetention follows the end of the log at the pace, with and without a retained log. After a
// round with one, clients of the same node read the same changes again: from the oplog, and, once
// the oplog has lost the changes, from the segments.
func (b *bench) raceRetention(ctx context.Context) error {
	runs := []func(context.Context) error{b.runUnretained, b.runRetained}
	for round := range b.scale.rounds {
		for _, i := range sequence(round, len(runs)) {
			if err := runs[i](ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// retainedLoad describes the changes, a few of which are of the collection rare.
func (b *bench) retainedLoad() load {
	total := int(float64(b.scale.pace) * b.scale.retained.Seconds())
	data := b.data(total*(100-rarePercent)/100, b.scale.pace*(100-rarePercent)/100)
	data.Rare = total * rarePercent / 100
	data.Documents = min(data.Documents, data.Rare)
	return data
}

func (b *bench) runUnretained(ctx context.Context) error {
	data := b.retainedLoad()
	during := func() error { return b.writeAll(ctx, data) }
	e := with("off", func(j *scenario) { j.Coll = "" })
	return errors.Join(b.enter(ctx, "retention", e, b.job(data, 0), during), b.drop(ctx, data))
}

// writeAll writes changes and then one that nobody reads, so that cluster time moves past them.
func (b *bench) writeAll(ctx context.Context, data load) error {
	if _, err := b.write(ctx, data); err != nil {
		return err
	}
	return b.nudge(ctx)
}

// nudge writes a change that nobody reads.
func (b *bench) nudge(ctx context.Context) error {
	_, err := b.write(ctx, load{DB: b.name(), Events: 1, Documents: 1, Rate: 1000})
	return err
}

func (b *bench) runRetained(ctx context.Context) (err error) {
	folder, err := os.MkdirTemp("", "streamer-bench-")
	if err != nil {
		return fmt.Errorf("make a folder for the retained log: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	data := b.retainedLoad()
	j := b.job(data, 0)
	j.Contender = "grpc"
	j.Coll = ""
	j.Retained = retainedLog{Folder: folder, Rare: data.Rare}
	node, err := b.startNode(ctx, &j)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.close(), b.drop(ctx, data)) }()
	start, err := b.newSecond(ctx)
	if err != nil {
		return err
	}
	run := func(name string, j scenario, during func() error) error {
		key := "retention/" + name
		profile := ""
		if b.profile != "" {
			profile = b.profileOf(key)
		}
		o, err := b.contend(ctx, node, j, profile, during)
		b.outcomes[key] = append(b.outcomes[key], o)
		return err
	}
	if err := run("on", j, func() error { return b.writeAll(ctx, data) }); err != nil || b.uri != "" {
		return err
	}
	if err := b.fill(ctx, &j); err != nil {
		return err
	}
	again := j
	few := j
	again.Start = start
	again.Subscriber = ""
	few.Start = start
	few.Subscriber = ""
	few.Coll = rare
	few.Events = data.Rare
	if err := errors.Join(run("oplog", again, nil), run("oplog_rare", few, nil), b.log.call(ctx, "truncate", none{}, &none{})); err != nil {
		return err
	}
	if err := errors.Join(run("segments", again, nil), run("segments_rare", few, nil)); err != nil {
		return err
	}
	few.Contender = "returners"
	for _, c := range []struct {
		name    string
		clients int
	}{{"single", 1}, {"returners", returnersCount}} {
		few.Clients = c.clients
		if err := run(c.name, few, nil); err != nil {
			return err
		}
	}
	return nil
}

// returnersCount is how many clients read the retained log at once.
const returnersCount = 200

// returners are many clients that read the same changes of the retained log at once, which nobody
// has read shortly before.
type returners struct {
	subscriber

	others  []*clientRun
	missing sync.WaitGroup // of the changes of the others
	fetched float64        // by readers of the retained log before
}

// Open implements Contender.
func (c *returners) Open(ctx context.Context, round *round) error {
	for {
		counted, err := round.retentionMetrics(ctx)
		if err != nil {
			return err
		}
		if c.fetched = counted["read_bytes_total"]; counted["cache_bytes"] == 0 {
			break
		}
		if err := lookAgain(ctx, nil); err != nil {
			return err
		}
	}
	if err := c.subscriber.Open(ctx, round); err != nil {
		return err
	}
	for range round.Clients - 1 {
		other, err := client.New(client.Config{
			Logger: slog.New(slog.DiscardHandler), Addresses: []string{round.Node.GRPC}, Start: client.StartTime, Time: time.Unix(round.Start, 0),
			OnNotice: connects(make(chan struct{}, 100)),
		})
		if err != nil {
			return err
		}
		var got atomic.Int64
		c.missing.Add(round.Events)
		err = other.Subscribe(client.Subscription{ID: "all", DB: round.DB, Coll: rare}, func(context.Context, client.Change) error {
			if got.Add(1) <= int64(round.Events) {
				c.missing.Done()
			}
			return nil
		})
		if err != nil {
			return err
		}
		c.others = append(c.others, runClient(ctx, other))
	}
	return nil
}

// Read implements Contender.
func (c *returners) Read(ctx context.Context) error {
	if err := c.subscriber.Read(ctx); err != nil {
		return err
	}
	arrived := make(chan struct{})
	go func() {
		c.missing.Wait()
		close(arrived)
	}()
	if err := c.client.await(ctx, arrived); err != nil {
		return err
	}
	c.round.stop()
	counted, err := c.round.retentionMetrics(ctx)
	c.round.record("fetched", counted["read_bytes_total"]-c.fetched)
	return err
}

// Close implements Contender.
func (c *returners) Close() error {
	for _, other := range c.others {
		other.stop()
	}
	return c.subscriber.Close()
}

var _ contender = (*returners)(nil)

// fill writes changes that push all others out of the ring of the tail, and waits until they are
// retained.
func (b *bench) fill(ctx context.Context, j *scenario) error {
	ctx, cancel := context.WithTimeout(ctx, j.Timeout)
	defer cancel()
	filler := load{DB: j.DB, Collection: "filler", Events: fillers, Documents: fillers, Payload: fillerBytes}
	if err := b.writeAll(ctx, filler); err != nil {
		return err
	}
	_, err := (&round{scenario: *j}).retained(ctx, j.Events+j.Retained.Rare+fillers)
	return err
}

// newSecond waits until cluster time is in another second than the node's start, which its retained
// log then has from its beginning on.
func (b *bench) newSecond(ctx context.Context) (second int64, err error) {
	for first := int64(0); ; {
		if second, err = b.write(ctx, load{DB: b.name(), Events: 1, Documents: 1, Rate: 1000}); err != nil {
			return 0, err
		}
		if first == 0 {
			first = second
		}
		if second > first {
			return second, nil
		}
		if err := lookAgain(ctx, nil); err != nil {
			return 0, err
		}
	}
}

// awaitSegments waits until the node's retained log has all changes, and records their sizes.
func (r *round) awaitSegments(ctx context.Context) error {
	counted, err := r.retained(ctx, r.Events+r.Retained.Rare)
	if err != nil {
		return err
	}
	raw := counted["raw_bytes_total"]
	r.record("stored_per_byte", counted["written_bytes_total"]/raw)
	r.record("segments", counted["segments_written_total"])
	r.record("event_bytes", raw/counted["events_written_total"])
	return nil
}

// retained waits until the node's retained log has a number of changes, and returns its metrics.
func (r *round) retained(ctx context.Context, events int) (map[string]float64, error) {
	for {
		counted, err := r.retentionMetrics(ctx)
		if err != nil || counted["events_written_total"] >= float64(events) {
			return counted, err
		}
		if err := lookAgain(ctx, nil); err != nil {
			return nil, err
		}
	}
}

// retentionMetrics returns the node's metrics of its retained log, by the end of their names.
func (r *round) retentionMetrics(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Node.HTTP+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	found := make(map[string]float64)
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if name, ours := strings.CutPrefix(name, "streamer_retention_"); ours {
			if v, err := strconv.ParseFloat(text, 64); err == nil {
				found[name] = v
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return found, nil
}

func (b *bench) retentionOnVsOff() metric {
	const on, off = "retention/on", "retention/off"
	f := b.from("events/s with a retained log in a folder ÷ events/s without, paced", on, off)
	return f.done(func() (float64, []target) {
		stored := f.of(on).Values["stored_per_byte"].Median
		f.Values["segments"] = f.of(on).Values["segments"].Median
		f.Values["event_bytes"] = f.of(on).Values["event_bytes"].Median
		ratio := f.rate(on, off)
		return ratio, []target{
			atLeast("events/s", ratio, 0.97),
			atMost("node's CPU with it over that without, µs an event", f.of(on).CPU.Median-f.of(off).CPU.Median, 1.5),
			atMost("bytes stored for a byte of changes", stored, 0.25),
		}
	})
}

func (b *bench) retainedReturners() metric {
	const many, single = "retention/returners", "retention/single"
	f := b.from(fmt.Sprintf("bytes of segments that a node fetches for %d clients of a collection with %d %% of the changes ÷ for one", returnersCount, rarePercent), many, single)
	return f.done(func() (float64, []target) {
		f.Values["fetched"] = f.of(single).Values["fetched"].Median
		ratio := f.of(many).Values["fetched"].Median / f.Values["fetched"]
		return ratio, []target{
			atMost("bytes fetched", ratio, 2),
			atMost("entries that MongoDB looked at for an event", f.of(many).Examined.Median, 0.001),
		}
	})
}

func (b *bench) retainedCatchup() metric {
	const segments, oplog = "retention/segments", "retention/oplog"
	f := b.from("events/s of a client that catches up from segments ÷ events/s of one that catches up from the oplog", segments, oplog, segments+"_rare", oplog+"_rare")
	return f.done(func() (float64, []target) {
		f.Values["cpu_ratio"], f.Values["cpu_ratio_rare"] = f.cpu(segments, oplog), f.cpu(segments+"_rare", oplog+"_rare")
		f.Values["entries_examined_oplog"] = f.of(oplog).Examined.Median
		ratio := f.rate(segments, oplog)
		return ratio, []target{
			atLeast("events/s, everything", ratio, 1),
			atLeast(fmt.Sprintf("events/s, a collection with %d %% of the changes", rarePercent), f.rate(segments+"_rare", oplog+"_rare"), 5),
			atMost("entries that MongoDB looked at for an event", f.of(segments).Examined.Median, 0.001),
		}
	})
}
