package handoff

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/notice"
)

// A Server serves the partitions of a node.
type Server interface {
	// Drain ends terms: it stops delivering their partitions to shared subscribers, and saves the
	// acknowledged progress. It blocks until then, for a bounded time.
	Drain(ctx context.Context, terms []change.Term)
	// Broadcast continues to deliver partitions that have moved to another node to the sessions
	// that follow the owners, until the window's terms are over. It does not block.
	Broadcast(window []change.Term)
	// Announce tells the node's sessions that partitions have moved to another node. It does not
	// block.
	Announce(to string, moved []change.Partition)
}

// An Owner owns partitions in a cluster, under leases. [member.Member] is one.
type Owner interface {
	// Transfer makes a member the owner of the partitions of terms that have been drained, and
	// returns how many transfers are known to have succeeded. It returns all of the terms; the node
	// that the plan names claims the partitions that were not transferred.
	Transfer(ctx context.Context, to cluster.Member, terms []change.Term) (int, error)
	// Window returns terms of partitions that have been transferred, which are over after d, or
	// with the lease of the terms before that.
	Window(terms []change.Term, d time.Duration) []change.Term
	// Keep declines the offer of a term, which continues. It is offered again while the plan
	// assigns its partition to another node.
	Keep(term change.Term)
}

// Config configures a Donor. Everything is required unless it says more.
type Config struct {
	Node       string // of the donor
	Partitions int
	Server     Server
	Owner      Owner
	// Overlap is the broadcast window: for how long after the transfer sessions that follow the
	// owners still get the partitions from this node.
	Overlap time.Duration
	// View returns the last view of the cluster, none before the first.
	View func() (cluster.View, bool)
	// Board receives a notice of every handoff. Optional.
	Board *notice.Board
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics. Optional.
	Registerer prometheus.Registerer
	// Tracer records handoffs. Defaults to none.
	Tracer trace.Tracer
}

// transferTimeout bounds the transaction of a handoff.
const transferTimeout = 2 * time.Second

// A Donor hands partitions over to the nodes to which the plan assigns them.
type Donor struct {
	cfg     Config
	offers  chan offer // never full: no term is offered twice
	metrics metrics
}

// An offer is terms whose partitions the plan assigns to other nodes.
type offer struct {
	terms []change.Term
	at    time.Time
}

// NewDonor returns a Donor. Run runs it.
func NewDonor(cfg Config) *Donor {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Tracer == nil {
		cfg.Tracer = noop.Tracer{}
	}
	return &Donor{cfg: cfg, offers: make(chan offer, cfg.Partitions), metrics: newMetrics(cfg.Registerer)}
}

// Run hands over offered terms until the context ends.
func (d *Donor) Run(ctx context.Context) {
	for {
		select {
		case o := <-d.offers:
			for to, leaving := range d.byTarget(o.terms) {
				d.move(ctx, to, leaving, o.at)
			}
		case <-ctx.Done():
			return
		}
	}
}

// Offer offers terms whose partitions the plan assigns to other nodes. It never blocks.
func (d *Donor) Offer(terms []change.Term) {
	select {
	case d.offers <- offer{terms, time.Now()}:
	default:
		for _, term := range terms {
			d.cfg.Owner.Keep(term)
		}
	}
}

// byTarget groups terms by the nodes that take them. Those that no node takes are kept until the
// plan says otherwise.
func (d *Donor) byTarget(terms []change.Term) map[string][]change.Term {
	view, _ := d.cfg.View()
	leaving := make(map[string][]change.Term)
	for _, term := range terms {
		to := view.Plan.Owner(term.Partition)
		if _, takes := target(view, to); !takes || to == d.cfg.Node {
			d.cfg.Owner.Keep(term)
			continue
		}
		leaving[to] = append(leaving[to], term)
	}
	return leaving
}

// target returns the member that is a node, and whether it takes partitions.
func target(v cluster.View, node string) (cluster.Member, bool) {
	m, there := memberOf(v, node)
	return m, there && m.Garbled == nil && m.Kind != cluster.KindGateway && m.Checks[cluster.CheckMongoDB] &&
		(m.Status == cluster.StatusHealthy || m.Status == cluster.StatusDegraded)
}

// move drains terms and transfers their partitions to a node. Afterwards they are not this node's,
// whether or not the transfer succeeded. The span begins with the offer, and those of the target
// are below it.
func (d *Donor) move(ctx context.Context, node string, terms []change.Term, offered time.Time) {
	begun := time.Now()
	view, _ := d.cfg.View()
	to, _ := target(view, node)
	ctx, span := d.cfg.Tracer.Start(ctx, "handoff", trace.WithTimestamp(offered), trace.WithAttributes(
		attribute.String("from", d.cfg.Node), attribute.String("to", node), attribute.Int("partitions", len(terms)),
		attribute.Int64("plan", int64(view.Plan.Version)),
	))
	defer span.End()
	span.AddEvent("requested", trace.WithTimestamp(offered))
	draining, drained := d.cfg.Tracer.Start(ctx, "handoff.drain")
	d.cfg.Server.Drain(draining, terms)
	drained.End()
	n, err := d.transfer(ctx, to, terms)
	d.cfg.Server.Broadcast(d.cfg.Owner.Window(terms, d.cfg.Overlap))
	took := time.Since(begun)
	d.metrics.handed.WithLabelValues("moved").Add(float64(n))
	d.metrics.handed.WithLabelValues("given_back").Add(float64(len(terms) - n))
	for range n {
		d.metrics.observe(took, span.SpanContext())
	}
	log := d.cfg.Logger.With("to", node, "partitions", n, "of", len(terms), "plan", view.Plan.Version, "took", took.String())
	if err != nil {
		log.Warn("partitions were handed over in part", "error", err)
	} else {
		log.Info("partitions were handed over")
	}
	moved := partitionsOf(terms)
	d.cfg.Board.Post(handedOver(d.cfg.Node, view.Plan, to.Node, moved, n, took))
	d.cfg.Server.Announce(node, moved)
}

// transfer runs the transaction.
func (d *Donor) transfer(ctx context.Context, to cluster.Member, terms []change.Term) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	ctx, span := d.cfg.Tracer.Start(ctx, "handoff.release")
	defer span.End()
	n, err := d.cfg.Owner.Transfer(ctx, to, terms)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.SetAttributes(attribute.Int("handed_over", n))
	return n, err
}

func partitionsOf(terms []change.Term) []change.Partition {
	partitions := make([]change.Partition, len(terms))
	for i, term := range terms {
		partitions[i] = term.Partition
	}
	slices.Sort(partitions)
	return partitions
}

// handedOver is the notice of a handoff.
func handedOver(from string, plan cluster.Plan, to string, partitions []change.Partition, handed int, took time.Duration) notice.Notice {
	n := notice.Notice{
		Channel: notice.Health, Kind: notice.KindHandedOver, Level: notice.Info,
		Text: fmt.Sprintf("Node %s handed %d partitions over to node %s.", from, handed, cmp.Or(to, "-")),
		Fields: map[string]any{
			"from": from, "to": to, "partitions": partitions, "handed_over": handed, "plan": plan.Version, "cause": plan.Cause, "took_ms": took.Milliseconds(),
		},
	}
	if handed < len(partitions) {
		n.Level = notice.Warning
		n.Text += fmt.Sprintf(" %d were given back for it to claim.", len(partitions)-handed)
	}
	return n
}
