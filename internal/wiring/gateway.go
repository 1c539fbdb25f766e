package wiring

import (
	"context"
	"sync"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gateway"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/notice"
)

// buildGateway makes the server of the gateways' protocol.
func (s *Service) buildGateway(context.Context) error {
	cfg := s.opts.Config
	s.gateway = gateway.NewServer(gateway.Config{
		Cluster: s.origin.Cluster, Node: cfg.Node.ID, Partitions: cfg.Cluster.Partitions,
		Recent: func() []delivery.Notice { return recentNotices(s.board, time.Now()) }, Topology: s.member.Topology(), Carries: s.carries(), Access: s.listeners.Access, Accounts: s.listeners.Accounts, Audit: s.auditor.Session,
		MaxSessions: cfg.Gateway.MaxSessions, MaxSubscriptions: cfg.Gateway.MaxSubscriptions,
		SubscribeRate: cfg.Gateway.SubscribeRate, SubscribeBurst: cfg.Gateway.SubscribeBurst,
		CreditEvents: cfg.Gateway.CreditEvents, CreditBytes: int(cfg.Gateway.CreditBytes), HeartbeatTimeout: cfg.GRPC.HeartbeatTimeout, StallTimeout: cfg.GRPC.StallTimeout,
		MaxPeers: cluster.MaxGateways, KeepLeft: max(10*time.Second, 5*cfg.Cluster.HeartbeatInterval), Logger: s.logger, Registerer: s.registry,
	}, s.node)
	s.gateway.Serving(false) // until it is judged
	return nil
}

// carries returns the optional contents of the log's events.
func (s *Service) carries() match.Carries { return backend.Carries(s.opts.Config) }

// runGateway serves gateways until the context ends. Without a gRPC server it passes rewinds on.
func (s *Service) runGateway(ctx context.Context) error {
	if s.grpc == nil {
		s.forward(ctx)
		return nil
	}
	var forwarding sync.WaitGroup
	defer forwarding.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	forwarding.Go(func() { s.forward(ctx) })
	return s.gateway.Serve(ctx, s.grpc, s.listeners.GRPC(), closeTimeout)
}

// forward passes notices of the board on to gateways, until the context ends.
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
				s.rewoundElsewhere(n) //nolint:contextcheck // what it begins lasts as long as the node
			}
		}
	}
}
