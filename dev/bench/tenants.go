package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/client"
)

const (
	// tenantsHonest are how many identities are honest.
	tenantsHonest = 10
	// tenantsRate is how many changes a second are written for the honest ones together.
	tenantsRate = 2000
	// probing is the interval of requests to /livez, and probeTimeout the timeout of each.
	probing, probeTimeout = 50 * time.Millisecond, 5 * time.Second
)

// honest and hostile are the names of identities. Their tokens equal their names, because only this
// benchmark uses the loopback address.
func honest(i int) string  { return fmt.Sprint("honest-", i) }
func hostile(i int) string { return fmt.Sprint("hostile-", i) }

// raceTenants lets honest identities follow the end of the oplog, alone and together with hostile
// ones that have the same rights and limits.
func (b *bench) raceTenants(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "streamer-bench-")
	if err != nil {
		return fmt.Errorf("make a folder for identities: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "identities")
	lines := &strings.Builder{}
	identity := func(name string) {
		fmt.Fprintf(lines, "token sha256:%x name=%s namespace=*\n", sha256.Sum256([]byte(name)), name)
	}
	for i := range tenantsHonest {
		identity(honest(i))
	}
	for i := range attacks() {
		identity(hostile(i))
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		return fmt.Errorf("write identities: %w", err)
	}
	tenants := func(name string, attacks []string) entry {
		return entry{name: name, contender: "tenants", node: true, adjust: func(j *scenario) {
			j.Identities = file
			j.Clients = tenantsHonest
			j.Attacks = attacks
			j.Delays = true
		}}
	}
	events := int(tenantsRate * b.scale.siege.Seconds())
	return b.raceLiveRounds(ctx, "tenants", b.scale.sieges, events, tenantsRate, tenants("alone", nil), tenants("besieged", b.attacks))
}

// tenants are Go clients of one identity each, which share the documents, while a prober requests
// /livez and hostile identities attack.
type tenants struct {
	round     *round
	mu        sync.Mutex // guards the check
	end       context.CancelFunc
	arrived   chan struct{} // closed when everything has arrived
	failed    chan error    // why a client has ended before
	clients   sync.WaitGroup
	connects  atomic.Int64
	attackers *worker // nil without attackers
	prober    prober
}

// Open implements Contender.
func (t *tenants) Open(ctx context.Context, round *round) error {
	t.round = round
	t.arrived = make(chan struct{})
	t.failed = make(chan error, round.Clients)
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	t.end = end
	connected := make(chan struct{}, round.Clients)
	round.begin()
	for i := range round.Clients {
		if err := t.connect(running, i, connected); err != nil {
			return err
		}
	}
	for range round.Clients {
		select {
		case <-connected:
		case err := <-t.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("connect the clients: %w", context.Cause(ctx))
		}
	}
	t.clients.Go(func() { t.prober.run(running, "http://"+round.Node.Probes+"/livez") })
	if len(round.Attacks) == 0 {
		return nil
	}
	var err error
	if t.attackers, err = startWorker("attackers", os.Stderr); err != nil {
		return err
	}
	return t.attackers.call(ctx, "attack", siege{Node: round.Node, DB: round.DB, Attacks: round.Attacks}, &none{})
}

// connect runs the i-th client, which says once that it is connected.
func (t *tenants) connect(ctx context.Context, i int, connected chan<- struct{}) error {
	var once sync.Once
	c, err := client.New(client.Config{
		Logger:    slog.New(slog.DiscardHandler),
		Addresses: []string{t.round.Node.GRPC}, Subscriber: honest(i), Start: client.StartNow,
		Token: func(context.Context) (string, error) { return honest(i), nil },
		OnNotice: func(_ context.Context, n client.Notice) error {
			switch n := n.(type) {
			case client.Connected:
				t.connects.Add(1)
				once.Do(func() { connected <- struct{}{} })
			case client.Resync:
				return fmt.Errorf("told of a loss: %+v", n)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	wanted := client.Subscription{ID: "mine", DB: t.round.DB, Coll: collection, Filter: t.round.share(i)}
	if err := c.Subscribe(wanted, t.handle); err != nil {
		return err
	}
	t.clients.Go(func() {
		if err := c.Run(ctx); err != nil || ctx.Err() == nil {
			t.failed <- errors.Join(fmt.Errorf("the client of %s has ended", honest(i)), err)
		}
	})
	return nil
}

// handle takes a change.
func (t *tenants) handle(_ context.Context, c client.Change) error {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	check := t.round.check
	if check.done() {
		return nil
	}
	if check.event(c.Data, now); check.done() {
		close(t.arrived)
	}
	return nil
}

// Read implements Contender.
func (t *tenants) Read(ctx context.Context) (err error) {
	select {
	case <-t.arrived:
	case err = <-t.failed:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if t.attackers != nil {
		var done map[string]attackResult
		err = errors.Join(err, t.attackers.call(context.WithoutCancel(ctx), "end", none{}, &done))
		var all attackResult
		for name, r := range done {
			t.round.record(name+"_attempts", float64(r.Attempts))
			t.round.record(name+"_refused", float64(r.Refused))
			all.Attempts += r.Attempts
			all.Refused += r.Refused
			if r.Attempts == 0 {
				err = errors.Join(err, fmt.Errorf("the attack %s made no attempt", name))
			}
		}
		t.round.record("attempts", float64(all.Attempts))
		t.round.record("refused", float64(all.Refused))
	}
	t.end()
	t.clients.Wait()
	t.round.record("reconnects", float64(t.connects.Load())-float64(t.round.Clients))
	t.round.record("livez_max_ms", t.prober.longest.Seconds()*1000)
	return errors.Join(err, t.prober.err)
}

// Close implements Contender.
func (t *tenants) Close() (err error) {
	if t.attackers != nil {
		err = t.attackers.close()
	}
	if t.end != nil {
		t.end()
		t.clients.Wait()
	}
	return err
}

// A prober requests /livez of a node, each time on a new connection.
type prober struct {
	longest time.Duration
	err     error // of the first request without an answer
}

func (p *prober) run(ctx context.Context, url string) {
	tick := time.NewTicker(probing)
	defer tick.Stop()
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: probeTimeout}
	for ctx.Err() == nil {
		begun := time.Now()
		err := p.ask(ctx, web, url)
		if ctx.Err() != nil {
			return
		}
		if p.longest = max(p.longest, time.Since(begun)); err != nil && p.err == nil {
			p.err = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (p *prober) ask(ctx context.Context, web *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	response, err := web.Do(request)
	if err != nil {
		return fmt.Errorf("ask whether the node lives: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("ask whether the node lives: %s", response.Status), err)
	}
	return nil
}

var _ contender = (*tenants)(nil)
