package handoff

import (
	"context"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/handoff/ledger"
)

// A Desk does one node's part in handoffs.
type Desk struct {
	cfg     Config
	keeper  ledger.Keeper
	metrics metrics

	mu struct {
		sync.Mutex
		busy map[change.Partition]int // sides that this node does of a partition
	}
}

// NewDesk makes a Desk. RunDonor and RunRecipient move it.
func NewDesk(cfg Config, keeper ledger.Keeper) *Desk {
	cfg = cfg.withDefaults()
	d := &Desk{cfg: cfg, keeper: keeper, metrics: newMetrics(cfg.Registerer)}
	d.mu.busy = make(map[change.Partition]int)
	return d
}

// Alone reports whether a partition is on its way from or to this node: whoever claims and gives up partitions leaves it alone until that is
// over. It never blocks.
func (d *Desk) Alone(p change.Partition) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.busy[p] > 0
}

// note counts sides of a partition that begin and end.
func (d *Desk) note(p change.Partition, sides int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.busy[p] += sides; d.mu.busy[p] == 0 {
		delete(d.mu.busy, p)
	}
}

// A Report is what became of a handoff for one side.
type Report struct {
	Record  ledger.Record
	Side    Side
	Outcome Outcome
	// Why says why it did not go as it should, nil where it did.
	Why error
	// Spent is how long each step took, by its name.
	Spent map[string]time.Duration
}

// hands do what a Transfer decides.
type hands interface {
	// do does one action. What it returns goes into the next Seen.
	do(ctx context.Context, a Action) (ledger.Sight, error)
	// over returns a channel that is closed when the donor's term is over, and why it is.
	over() (<-chan struct{}, error)
	// warmed is sent how the warming has ended; nil for a donor.
	warmed() <-chan error
	// rest returns after everything has ended that do has begun.
	rest()
}

// A job is a handoff that is being done.
type job struct {
	revision int64         // of its record when it began
	wake     chan struct{} // holds one signal when something may have changed in the ledger
}

// A part is what a node does in one side's role.
type part struct {
	side  Side
	mine  func(ledger.Record) bool // whether a record is to be handled
	build func(ledger.Record) (*Transfer, hands)
}

// dispatch does the handoffs that are the part's, each in a goroutine of its own and so many at a time, until the context ends and all
// have come to an end.
func (d *Desk) dispatch(ctx context.Context, p part) error {
	hints := d.keeper.Hints(ctx)
	jobs := make(map[change.Partition]job)
	done := make(map[change.Partition]int64) // revisions of records that have been done, and may still stand; lower ones follow a restore
	ended := make(chan change.Partition)
	defer func() {
		for range len(jobs) {
			<-ended
		}
	}()
	look := time.NewTimer(0)
	defer look.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case partition := <-ended:
			done[partition] = jobs[partition].revision
			delete(jobs, partition)
		case _, open := <-hints:
			if !open {
				hints = nil
			}
			for _, j := range jobs {
				signal(j.wake)
			}
		case <-look.C:
			if p.side == Giving {
				clear(done) // a donor that still is one gives what it could not before, or takes the record away
			}
		}
		records, err := d.list(ctx)
		look.Reset(lookEvery)
		if err != nil && ctx.Err() == nil && !failing {
			d.cfg.Logger.Warn("handoffs cannot be looked for", "error", err)
		}
		failing = err != nil
		for _, r := range records {
			if _, running := jobs[r.Partition]; running || !p.mine(r) || r.Revision == done[r.Partition] || len(jobs) == d.cfg.Concurrency {
				continue
			}
			j := job{revision: r.Revision, wake: make(chan struct{}, 1)}
			jobs[r.Partition] = j
			d.note(r.Partition, 1)
			go func() {
				defer func() {
					d.note(r.Partition, -1)
					ended <- r.Partition
				}()
				d.carry(ctx, p, r, j.wake)
			}()
		}
	}
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func (d *Desk) list(ctx context.Context) ([]ledger.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.CallTimeout)
	defer cancel()
	return d.keeper.List(ctx)
}

// carry carries one side of a handoff to its end. When the context ends, the end is to be near.
func (d *Desk) carry(ctx context.Context, p part, r ledger.Record, wake <-chan struct{}) {
	t, h := p.build(r)
	logger := d.cfg.Logger.With("partition", r.Partition, "epoch", r.Epoch.String(), "side", string(p.side))
	logger.Info("handoff begins", "from", r.From.Node, "to", r.To.Node, "cause", r.Cause, "by", r.By)
	d.drive(ctx, t, h, wake)
	h.rest()
	outcome, why := t.Outcome()
	report := Report{Record: r, Side: p.side, Outcome: outcome, Why: why, Spent: make(map[string]time.Duration, len(t.spent))}
	for at, took := range t.spent {
		report.Spent[string(at)] = took
	}
	d.metrics.note(report)
	if d.cfg.Ended != nil {
		d.cfg.Ended(report)
	}
	if why != nil {
		logger.Warn("handoff ended", "outcome", string(outcome), "error", why)
		return
	}
	logger.Info("handoff ended", "outcome", string(outcome))
}

// drive is the loop of one side: it waits, asks the Transfer, and does what that says.
func (d *Desk) drive(ctx context.Context, t *Transfer, h hands, wake <-chan struct{}) {
	work, stopping := context.WithoutCancel(ctx), ctx.Done()
	over, _ := h.over()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var s Seen
	for {
		_, s.Over = h.over()
		s.Trusted, s.Stopping = d.cfg.Trusted(), ctx.Err() != nil
		actions, until := t.Step(d.cfg.Clock(), s)
		s = Seen{}
		for _, a := range actions {
			s.Did = a
			s.Sight, s.Err = d.do(work, h, a)
		}
		if outcome, _ := t.Outcome(); outcome != "" {
			return
		}
		if len(actions) > 0 {
			continue
		}
		timer.Reset(max(until-d.cfg.Clock(), 0))
		select {
		case <-timer.C:
		case <-wake:
			s.Hinted = true
		case s.WarmErr = <-h.warmed():
			s.Warmed = true
		case <-over:
			over = nil
		case <-stopping:
			stopping = nil
		}
	}
}

// do does one action in the time of one call; Warm has its own.
func (d *Desk) do(ctx context.Context, h hands, a Action) (ledger.Sight, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.CallTimeout)
	defer cancel()
	return h.do(ctx, a)
}
