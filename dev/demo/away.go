package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/mongostream/streamer/client"
	"github.com/mongostream/streamer/dev/workload"
	"github.com/mongostream/streamer/internal/retry"
)

// An absent subscriber stops after a tenth of the time, and resumes where it was after four
// fifths.
const (
	leavesAfter  = 0.1
	returnsAfter = 0.8
)

// An absence is the outcome for an absent subscriber.
type absence struct {
	workload.Report

	Seconds float64 `json:"away_seconds"`
	// Wraps is how often the oplog was replaced meanwhile.
	Wraps float64 `json:"oplog_wraps"`
	// Losses are those that it was notified of.
	Losses []client.Resync `json:"losses"`
}

// losses are those that a subscriber was notified of.
type losses struct {
	mu  sync.Mutex
	all []client.Resync
}

func (l *losses) add(r client.Resync) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r)
}

func (l *losses) list() []client.Resync {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]client.Resync{}, l.all...)
}

// An absentee is a subscriber that is absent for most of the time.
type absentee struct {
	d        *demo
	check    *workload.Check
	position client.Position
	losses   losses
	seconds  float64
	wraps    float64
}

// logSettings are the settings of a node that retains its log, and of one whose oplog is small: the
// newest changes, which it has in memory, would be all that a small one ever had.
func (d *demo) logSettings(p *parts) (settings []string) {
	if d.oplog > 0 {
		settings = append(settings, "STREAMER_MONGODB_RING_SIZE=1MiB", "STREAMER_MONGODB_PREFETCH=512KiB")
	}
	if d.retain {
		settings = append(settings, "STREAMER_RETENTION_STORE=file://"+filepath.Join(p.dir, "log"), "STREAMER_RETENTION_INTERVAL=1s")
	}
	return settings
}

// run subscribes, stops, and subscribes again, until the context ends.
func (a *absentee) run(ctx context.Context, p *parts) error {
	begun := time.Now()
	share := func(f float64) time.Time { return begun.Add(time.Duration(f * float64(a.d.length))) }
	first, cancel := context.WithDeadline(ctx, share(leavesAfter))
	defer cancel()
	if err := a.subscribe(first); err != nil || ctx.Err() != nil {
		return err
	}
	leftAt := time.Now()
	left, _ := p.mongo.OplogEntries()
	if retry.Sleep(ctx, time.Until(share(returnsAfter))) != nil {
		return nil
	}
	gone, held := p.mongo.OplogEntries()
	a.seconds = time.Since(leftAt).Seconds()
	a.wraps = float64(gone-left) / float64(max(1, held))
	return a.subscribe(ctx)
}

// subscribe subscribes until the context ends.
func (a *absentee) subscribe(ctx context.Context) error {
	c, err := client.New(client.Config{
		Addresses: a.d.addresses, Subscriber: "away", Position: a.position, Start: client.StartEarliest,
		OnNotice: func(_ context.Context, n client.Notice) error {
			if lost, is := n.(client.Resync); is {
				a.losses.add(lost)
			}
			return nil
		},
		Logger: slog.New(slog.NewTextHandler(a.d.log, nil)).With("gateway", "away"),
	})
	if err != nil {
		return fmt.Errorf("make a subscriber: %w", err)
	}
	handle := func(_ context.Context, c client.Change) error { return a.check.JSON(c.Data, time.Now()) }
	if err := c.Subscribe(client.Subscription{ID: "all", Format: client.JSON}, handle); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	err = c.Run(ctx)
	a.position = c.Position()
	return err
}

// settle waits until everything has arrived. What was lost does not arrive: after a loss it waits
// until nothing has come for a while.
func (a *absentee) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	const quiet = 500 * time.Millisecond
	look := time.NewTicker(quiet)
	defer look.Stop()
	before := -1
	for a.check.Missing() > 0 {
		delivered, _ := a.check.Delivered()
		if len(a.losses.list()) > 0 && delivered == before {
			return
		}
		before = delivered
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// outcome returns what became of it.
func (a *absentee) outcome() *absence {
	return &absence{Report: a.check.Report(), Seconds: a.seconds, Wraps: a.wraps, Losses: a.losses.list()}
}

func (a *absence) String() string {
	return fmt.Sprintf("A subscriber was away for %.0f s, while the oplog was replaced %.1f times: %d changes missing, %d duplicates, %d losses",
		a.Seconds, a.Wraps, a.Missing, a.Duplicates, len(a.Losses))
}

// err says what went wrong, or that nothing was shown.
func (a *absence) err() error {
	isWrong := a.Missing > 0 || a.Duplicates > 0 || a.OutOfOrder > 0
	switch {
	case isWrong || len(a.Losses) > 0:
		return fmt.Errorf("of the subscriber that was away %d changes are missing, %d came twice, %d out of order, and it was told of losses: %+v",
			a.Missing, a.Duplicates, a.OutOfOrder, a.Losses)
	case a.Wraps < 1:
		return errors.New("the oplog still had everything when the subscriber came back: use a smaller -oplog or a longer -for")
	}
	return nil
}
