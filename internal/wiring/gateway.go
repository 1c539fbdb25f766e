package wiring

import (
	"context"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/gateway/connect"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/internal/mongodb/stream"
	"github.com/mongostream/streamer/internal/place"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/notice"
)

// buildHub makes what reads the log for gateways.
func (s *Service) buildHub(ctx context.Context) error {
	cfg := s.opts.Config
	var overlap time.Duration
	if cfg.Cluster.ExpectedNodes > 1 { // otherwise there is nowhere else to go
		overlap = cfg.Handoff.Overlap
	}
	s.hub = fanout.New(fanout.Config{
		Overlap:    overlap,
		Partitions: cfg.Cluster.Partitions, JSON: stream.DocumentJSON, Epoch: func(p change.Partition) change.Epoch { return s.node.Epoch(p) }, Namespaces: cfg.MongoDB.Watch,
		CreditEvents: cfg.Gateway.CreditEvents, CreditBytes: int(cfg.Gateway.CreditBytes), Hold: cfg.Gateway.Hold, Trusted: func() bool { return s.member.Trusted() }, Logger: s.logger, Registerer: s.registry,
	}, s.log)
	rows, err := s.store.Rows(ctx)
	if err != nil { // the others are there; who is not is not waited for
		s.logger.Warn("rows of gateways cannot be read", "error", place.FirstOf(err))
	}
	s.hub.Expect(recent(rows))
	return nil
}

// buildGateway makes the server of the gateways' protocol.
func (s *Service) buildGateway(context.Context) error {
	cfg := s.opts.Config
	s.gateway = connect.NewServer(connect.Config{
		Cluster: s.origin.Cluster, Node: cfg.Node.ID, Partitions: cfg.Cluster.Partitions, Now: s.mongo.Now, First: s.mongo.FirstEntry, Rows: s.store, Cursors: s.keys,
		Recent: func() []fanout.Notice { return recentNotices(s.board, time.Now()) }, Topology: s.member.Topology(), Carries: s.carries(), Access: s.door.Access, Accounts: s.door.Accounts,
		MaxSessions: cfg.Gateway.MaxSessions, MaxSubscriptions: cfg.Gateway.MaxSubscriptions,
		CreditEvents: cfg.Gateway.CreditEvents, CreditBytes: int(cfg.Gateway.CreditBytes), HeartbeatTimeout: cfg.GRPC.HeartbeatTimeout, Logger: s.logger,
	}, s.hub)
	return nil
}

// carries says what the log's events have beside the changes themselves.
func (s *Service) carries() match.Carries {
	cfg := s.opts.Config.MongoDB
	return match.Carries{Document: cfg.FullDocument != "default", Before: cfg.FullDocumentBeforeChange != "off"}
}

// seenRecently is how long ago a gateway may have been seen and still be expected back after a start.
const seenRecently = time.Hour

// recent returns the gateways that may come back.
func recent(rows []checkpoint.Row) (gateways []string) {
	for _, r := range rows {
		if r.Age < seenRecently {
			gateways = append(gateways, r.Gateway)
		}
	}
	return gateways
}

// runGateway serves gateways until the context ends.
func (s *Service) runGateway(ctx context.Context) error {
	if s.grpc == nil {
		return nil
	}
	var forwarding sync.WaitGroup
	defer forwarding.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	forwarding.Go(func() { s.forward(ctx) })
	return s.gateway.Serve(ctx, s.grpc, s.door.GRPC(), closeTimeout)
}

// forward hands what is posted on the board on to gateways, until the context ends.
func (s *Service) forward(ctx context.Context) {
	var last uint64
	for {
		notices, _, err := s.board.Follow(ctx, last)
		if err != nil {
			return
		}
		for _, n := range notices {
			last = n.ID
			if told, ok := announced(n); ok {
				s.gateway.Announce(told)
			}
			if n.Relayed && !n.Past && n.Kind == notice.KindRewound {
				s.rewoundElsewhere(ctx, n)
			}
		}
	}
}
