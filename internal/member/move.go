package member

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/notice"
)

// moveTimeout bounds the transaction of a handoff.
const moveTimeout = 2 * time.Second

// A mover hands partitions over to the nodes that the plan gives them to: in one transaction, after the shared subscribers' checkpoints have
// been saved. Sessions to which clients have attached the partitions deliver them until the clients detach them: only they know from where on
// another session has them.
type mover struct {
	*Member

	asks chan ask // a bound is not needed, as no term is asked for twice
	metrics
}

// An ask is terms that the plan gives to other nodes.
type ask struct {
	terms []change.Term
	at    time.Time
}

func newMover(m *Member) *mover {
	v := &mover{
		Member: m, asks: make(chan ask, m.cfg.Partitions),
		metrics: newMetrics(m.cfg.Registerer),
	}
	return v
}

// run moves partitions until the context ends.
func (v *mover) run(ctx context.Context) {
	for {
		select {
		case a := <-v.asks:
			for to, leaving := range v.byTarget(a.terms) {
				v.handOver(ctx, to, leaving, a.at)
			}
		case <-ctx.Done():
			return
		}
	}
}

// release has terms moved to where the plan wants them. It never blocks.
func (v *mover) release(terms []change.Term) {
	select {
	case v.asks <- ask{terms, time.Now()}:
	default:
		for _, term := range terms {
			v.agent.Keep(term)
		}
	}
}

// byTarget says which terms go to which node. Those that no node is there to take are kept until the plan says otherwise.
func (v *mover) byTarget(terms []change.Term) map[string][]change.Term {
	view, _ := v.View()
	leaving := make(map[string][]change.Term)
	for _, term := range terms {
		to := view.Plan.Owner(term.Partition)
		if _, takes := target(view, to); !takes || to == v.cfg.Member.Node {
			v.agent.Keep(term)
			continue
		}
		leaving[to] = append(leaving[to], term)
	}
	return leaving
}

// target returns the member that takes what the plan gives to a node.
func target(v cluster.View, node string) (cluster.Member, bool) {
	i := slices.IndexFunc(v.Members, func(s cluster.Member) bool { return s.Node == node })
	if i < 0 {
		return cluster.Member{}, false
	}
	s := v.Members[i]
	return s, s.Garbled == nil && s.Kind != cluster.KindGateway && s.Checks[cluster.CheckMongoDB] &&
		(s.Status == cluster.StatusHealthy || s.Status == cluster.StatusDegraded)
}

// handOver ends terms and gives their partitions to a node. Whatever becomes of that, they are not this node's any more: what could not be
// handed over is claimed by whoever the plan wants. The span begins when the agent has asked for it, and the other node's are below it.
func (v *mover) handOver(ctx context.Context, node string, terms []change.Term, asked time.Time) {
	begun := time.Now()
	view, _ := v.View()
	to, _ := target(view, node)
	ctx, span := v.cfg.Tracer.Start(ctx, "handoff", trace.WithTimestamp(asked), trace.WithAttributes(
		attribute.String("from", v.cfg.Member.Node), attribute.String("to", node), attribute.Int("partitions", len(terms)),
		attribute.Int64("plan", int64(view.Plan.Version)),
	))
	defer span.End()
	span.AddEvent("requested", trace.WithTimestamp(asked))
	draining, drained := v.cfg.Tracer.Start(ctx, "handoff.drain")
	v.cfg.Node.Release(draining, terms)
	drained.End()
	asking, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	releasing, released := v.cfg.Tracer.Start(asking, "handoff.release")
	n, err := v.agent.Hand(releasing, to, terms)
	if err != nil {
		released.SetStatus(codes.Error, err.Error())
	}
	released.SetAttributes(attribute.Int("handed_over", n))
	released.End()
	took := time.Since(begun)
	v.handed.WithLabelValues("moved").Add(float64(n))
	v.handed.WithLabelValues("given_back").Add(float64(len(terms) - n))
	for range n {
		v.observe(took, span.SpanContext())
	}
	log := v.cfg.Logger.Info
	if err != nil {
		log = v.cfg.Logger.Warn
	}
	log("partitions were handed over", "to", node, "partitions", n, "of", len(terms), "plan", view.Plan.Version, "took", took.String(), "error", err)
	v.cfg.Board.Post(movedNotice(v.cfg.Member.Node, view.Plan, to.Node, terms, n, took))
	v.cfg.Announce(delivery.Notice{
		Kind: "moved", Text: fmt.Sprintf("%d partitions move to node %s.", len(terms), node), At: time.Now(), Partitions: partitionsOf(terms),
	})
}

func partitionsOf(terms []change.Term) []change.Partition {
	partitions := make([]change.Partition, len(terms))
	for i, term := range terms {
		partitions[i] = term.Partition
	}
	return partitions
}

// movedNotice tells operators of a handoff.
func movedNotice(from string, plan cluster.Plan, to string, terms []change.Term, handed int, took time.Duration) notice.Notice {
	partitions := partitionsOf(terms)
	slices.Sort(partitions)
	n := notice.Notice{
		Channel: notice.Health, Kind: notice.KindHandedOver, Level: notice.Info,
		Text: fmt.Sprintf("Node %s handed %d partitions over to node %s.", from, handed, cmp.Or(to, "-")),
		Fields: map[string]any{
			"from": from, "to": to, "partitions": partitions, "handed_over": handed, "plan": plan.Version, "cause": plan.Cause, "took_ms": took.Milliseconds(),
		},
	}
	if handed < len(terms) {
		n.Level = notice.Warning
		n.Text += fmt.Sprintf(" %d were given back for it to claim.", len(terms)-handed)
	}
	return n
}

// drain waits until the node owns nothing any more because the others have taken it, for as long as that may take. It ends at once where
// there is nobody to take anything.
func (m *Member) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.DrainTimeout)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	begun := time.Now()
	for len(m.cfg.Node.Status()) > 0 && m.agent.Trusted() && m.others() {
		select {
		case <-look.C:
		case <-ctx.Done():
			m.cfg.Logger.Warn("not all partitions have moved to other nodes in time", "partitions", len(m.cfg.Node.Status()), "after", time.Since(begun).String())
			return
		}
	}
	m.cfg.Logger.Info("drained", "partitions", len(m.cfg.Node.Status()), "after", time.Since(begun).String())
}

// others reports whether somebody else could take partitions.
func (m *Member) others() bool {
	view, _ := m.View()
	return slices.ContainsFunc(view.Members, func(s cluster.Member) bool {
		return s.Garbled == nil && s.Node != m.cfg.Member.Node && s.Kind != cluster.KindGateway && s.Status == cluster.StatusHealthy
	})
}
