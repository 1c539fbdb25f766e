package wiring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"mongostream/change"
	"mongostream/cluster"
	"mongostream/cluster/govern"
	"mongostream/cluster/roster"
	"mongostream/cluster/share"
	"mongostream/fault"
	"mongostream/streamer"
)

// A member is this node's place in a cluster of several; the zero member is that of a cluster of one.
type member struct {
	roster roster.Store // nil in a cluster of one
	share  *share.Share
	leader interface {
		Run(ctx context.Context) error
	}
	view   atomic.Pointer[roster.View] // the last one, nil before
	begun  atomic.Bool                 // the log has been open
	events ending                      // event streams, when the node is detached
}

// joinsOthers reports whether the node shares the partitions with others.
func (s *Service) joinsOthers() bool { return s.opts.Config.Cluster.ExpectedNodes > 1 }

// owns takes the partitions that are this node's and serves them until the context ends: all of them, or a share.
func (s *Service) owns(ctx context.Context) error {
	cfg := s.opts.Config
	me := cluster.Member{Node: cfg.Node.ID, Process: s.opts.Process}
	if !s.joinsOthers() {
		solo := cluster.NewSolo(cluster.SoloConfig{
			Member: me, Partitions: cfg.Cluster.Partitions, TTL: cfg.Cluster.LeaseTTL, TakeOver: s.opts.TakeOver, Resume: s.resume, Log: s.logger,
		}, s.owner)
		return s.givingBack(ctx, solo, func() error { return solo.Run(ctx, s.serve) })
	}
	return s.givingBack(ctx, s.share, func() error { return s.share.Run(ctx, s.serveShare) })
}

// buildMember makes the node's place in a cluster of several.
func (s *Service) buildMember(context.Context) error {
	if !s.joinsOthers() {
		return nil
	}
	cfg := s.opts.Config
	s.share = share.New(share.Config{
		Member: cluster.Member{Node: cfg.Node.ID, Process: s.opts.Process}, TTL: cfg.Cluster.LeaseTTL,
		Report: s.report, Resume: s.resume, Release: func(terms []change.Term) { s.node.Release(terms) },
		Detached: s.detached, Viewed: func(v roster.View) { s.view.Store(&v) },
		Log: s.logger, Registerer: s.registry,
	}, s.roster)
	s.leader = govern.NewLeader(govern.Config{
		Node: cfg.Node.ID, Partitions: cfg.Cluster.Partitions, Expected: cfg.Cluster.ExpectedNodes, Settle: cfg.Cluster.SettleTime, TTL: cfg.Cluster.LeaseTTL,
		Trusted: s.share.Trusted, Board: s.board, Clock: cluster.SinceBoot, Log: s.logger, Registerer: s.registry,
	}, s.roster)
	return nil
}

// serveShare runs the node while terms come and go.
func (s *Service) serveShare(ctx context.Context) error {
	leading, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the node has come to its end: it may have to plan its own leave
	ended := make(chan error, 1)
	go func() { ended <- s.leader.Run(leading) }()
	s.logger.Info("node runs", "node", s.opts.Config.Node.ID, "process", s.opts.Process, "cluster", s.opts.Config.Cluster.ID,
		"address", s.Addr(), "version", s.opts.Version)
	err := s.node.Run(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// detached closes what the node serves: its clients find another node.
func (s *Service) detached(cause error) {
	s.hub.Detach(cause)
	s.events.end(fault.New(fault.NodeDetached, cause))
}

// trusted reports whether the node may hand anything to anybody.
func (s *Service) trusted() bool { return s.share == nil || s.share.Trusted() }

// report is what the node says of itself to the others.
func (s *Service) report() roster.Heartbeat {
	cfg := s.opts.Config
	open := s.log.Stats().Open
	if open {
		s.begun.Store(true)
	}
	h := roster.Heartbeat{
		Version: s.opts.Version, Status: roster.Healthy, Capacity: float64(cfg.Node.Capacity), Gateway: s.advertised(),
		Count: cfg.Cluster.Partitions, Fingerprint: s.source.Fingerprint(),
	}
	if s.begun.Load() { // before that, nothing is known
		h.Checks = map[string]bool{
			roster.CheckMongoDB: open, roster.CheckEtcd: true, roster.CheckCheckpoint: !s.node.MarksFailing(), roster.CheckGateway: true,
		}
	}
	switch {
	case s.stopping.Load():
		h.Status = roster.Stopping
	case !s.begun.Load():
		h.Status = roster.Starting
	case !open, s.node.MarksFailing():
		h.Status = roster.Degraded
	}
	for _, p := range s.node.Status() {
		h.Held = append(h.Held, roster.Held{Partition: p.Partition, Epoch: p.Epoch, Rate: p.Rate, State: string(p.State)})
		h.Load.Rate += p.Rate
		if p.Lag != nil && (h.Load.Lag == nil || *h.Load.Lag < p.Lag.Seconds()) {
			lag := p.Lag.Seconds()
			h.Load.Lag = &lag
		}
	}
	return h
}

// advertised is where gateways reach this node.
func (s *Service) advertised() string {
	if s.grpc == nil {
		return ""
	}
	address := cmp.Or(s.opts.Config.GRPC.Advertise, s.grpc.Addr().String())
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		if name, err := os.Hostname(); err == nil {
			return net.JoinHostPort(name, port)
		}
	}
	return address
}

// served reports whether the node serves what is its own.
func (s *Service) served() error {
	if s.share == nil {
		if n := len(s.node.Status()); n < s.opts.Config.Cluster.Partitions {
			return fmt.Errorf("%d of %d partitions are served", n, s.opts.Config.Cluster.Partitions)
		}
		return nil
	}
	view := s.view.Load()
	switch {
	case !s.share.Trusted():
		return errors.New("the node is not a member of its cluster now")
	case view == nil || view.Plan.Version == 0:
		return errors.New("the cluster has no plan yet")
	}
	status := s.node.Status()
	missing := 0
	for p, node := range view.Plan.Owners {
		if node == s.opts.Config.Node.ID && !slices.ContainsFunc(status, func(st streamer.PartitionStatus) bool { return int(st.Partition) == p }) {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d partitions of this node are not served yet", missing)
	}
	return nil
}

// attachedOnly serves only while the node may hand anything to anybody, and lets nothing through afterwards.
func (s *Service) attachedOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.trusted() {
			http.Error(w, string(fault.NodeDetached)+": the node is not a member of its cluster now", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := s.events.bind(r.Context())
		defer cancel()
		h.ServeHTTP(guardedWriter{w, s.trusted}, r.WithContext(ctx))
		if !s.trusted() {
			panic(http.ErrAbortHandler) // what is still in the connection's buffer stays there
		}
	})
}

// A guardedWriter writes nothing once the node may not.
type guardedWriter struct {
	http.ResponseWriter

	trusted func() bool
}

// Write implements io.Writer.
func (w guardedWriter) Write(b []byte) (int, error) {
	if !w.trusted() {
		return 0, fault.Newf(fault.NodeDetached, "the node is not a member of its cluster now")
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w guardedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher.
func (w guardedWriter) FlushError() error {
	if !w.trusted() {
		return fault.Newf(fault.NodeDetached, "the node is not a member of its cluster now")
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// An ending ends what is bound to it at the time.
type ending struct {
	mu struct {
		sync.Mutex
		all map[*context.CancelCauseFunc]struct{}
	}
}

// bind returns a context that ends with ctx, with the next end, or with cancel.
func (e *ending) bind(ctx context.Context) (bound context.Context, cancel func()) {
	bound, end := context.WithCancelCause(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.all == nil {
		e.mu.all = make(map[*context.CancelCauseFunc]struct{})
	}
	e.mu.all[&end] = struct{}{}
	return bound, func() {
		end(nil)
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.mu.all, &end)
	}
}

// end ends what is bound.
func (e *ending) end(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for end := range e.mu.all {
		(*end)(cause)
	}
	clear(e.mu.all)
}
