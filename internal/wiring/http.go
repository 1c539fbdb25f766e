package wiring

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"mongostream/fault"
	"mongostream/gateway"
	"mongostream/gateway/access"
	"mongostream/health"
	"mongostream/internal/admin"
	"mongostream/internal/mongodb/stream"
	"mongostream/notice"
	"mongostream/streamer/survey"
)

// listen binds the addresses, first of all: a port in use must harm nothing.
func (s *Service) listen(ctx context.Context) (err error) {
	if s.listener, err = s.bind(ctx, "http.listen", s.opts.Config.HTTP.Listen); err != nil {
		return err
	}
	if address := s.opts.Config.GRPC.Listen; address != "" {
		if err := access.CheckListen(address, false, s.opts.Config.GRPC.Insecure); err != nil {
			return err
		}
		s.grpc, err = s.bind(ctx, "grpc.listen", address)
	}
	return err
}

// bind listens on the address that a key of the configuration names.
func (s *Service) bind(ctx context.Context, key, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fault.Newf(fault.NodeAddressInUse, "%s: %w", key, err)
	case err != nil:
		return nil, fault.Newf(fault.ConfigBadValue, "%s: %w", key, err)
	}
	s.closers = append(s.closers, func() { _ = listener.Close() }) // closed by the server already, where it ran
	return listener, nil
}

// newServer makes the HTTP server: events for subscribers, health and metrics for those who look after the node.
func (s *Service) newServer() *http.Server {
	cfg := s.opts.Config
	mux := http.NewServeMux()
	mux.Handle("/v1/events", s.attachedOnly(gateway.NewEvents(gateway.EventsConfig{
		Cluster: s.origin.Cluster, Partitions: cfg.Cluster.Partitions, Encode: stream.RelaxedJSON, Now: s.mongo.Now, Carries: s.carries(),
		Heartbeat: cfg.HTTP.Heartbeat, StallTimeout: cfg.HTTP.StallTimeout, MaxClients: cfg.HTTP.MaxClients, Logger: s.logger, Registerer: s.registry,
	}, s.log)))
	mux.Handle("GET /v1/notices", notice.NewStream(notice.StreamConfig{Heartbeat: cfg.HTTP.Heartbeat, StallTimeout: cfg.HTTP.StallTimeout}, s.board))
	mux.Handle("GET /v1/gaps", admin.ServeGaps(s.store))
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Registry: s.registry}))
	s.health().Handle(mux, health.Node{
		Name: cfg.Node.ID, Cluster: cfg.Cluster.ID, Version: s.opts.Version, Uptime: s.node.Uptime, Partitions: s.partitions,
	})
	clients, endClients := context.WithCancel(context.Background())
	s.endClients = endClients
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return clients },
	}
}

// runServer serves HTTP until the context ends.
func (s *Service) runServer(ctx context.Context) error {
	defer s.endClients()
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		s.endClients()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = s.server.Shutdown(grace) // what is still open then is closed with the process
	})
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serve HTTP: %w", err)
	}
	<-stopped
	return nil
}

// partitions tells /health how the partitions do.
func (s *Service) partitions() []health.Partition {
	status := s.node.Status()
	partitions := make([]health.Partition, len(status))
	for i, p := range status {
		partitions[i] = health.Partition{ID: int(p.Partition), Status: p.State, EventRate: p.Rate}
		if p.Lag != nil {
			lag := p.Lag.Seconds()
			partitions[i].Lag = &lag
		}
		if p.HeadRoom != nil {
			room := p.HeadRoom.Seconds()
			partitions[i].HeadRoom = &room
		}
		if p.Failure != nil {
			partitions[i].Error = p.Failure.Error()
		}
		if !p.LastEvent.IsZero() {
			partitions[i].LastEvent = &p.LastEvent
		}
	}
	return partitions
}

// health registers the node's checks.
func (s *Service) health() *health.Registry {
	r := &health.Registry{}
	r.Register(health.Check{
		Name: "log_open", Severity: health.Critical, Ready: true, Text: "The node reads MongoDB's oplog through a change stream.",
		Test: func() error {
			if !s.log.Stats().Open {
				return errors.New("the stream is not open yet, or was lost and is being opened again")
			}
			return nil
		},
	})
	r.Register(health.Check{
		Name: "partitions_owned", Severity: health.Critical, Ready: true, Text: "The node owns its partitions and serves them.",
		Test: s.served,
	})
	r.Register(health.Check{
		Name: "not_stopping", Severity: health.Warning, Ready: true, Text: "The node has not been told to stop.",
		Test: func() error {
			if s.stopping.Load() {
				return errors.New("the node stops: what was delivered is being acknowledged and marked")
			}
			return nil
		},
	})
	r.Register(health.Check{
		Name: "marks_saved", Severity: health.Warning, Text: "Marks are saved; while they are not, more is delivered again after a crash.",
		Test: func() error {
			if s.node.MarksFailing() {
				return errors.New("the last round of marks could not be saved")
			}
			return nil
		},
	})
	r.Register(health.Check{
		Name: "oplog_head_room", Severity: health.Warning, Text: "No partition stands near the end of the oplog's reach, where its position is lost.",
		Test: func() error {
			for _, p := range s.node.Status() {
				if p.HeadRoomLevel != survey.Fine {
					return fmt.Errorf("the position of partition %d dies in %s", p.Partition, p.HeadRoom.Truncate(time.Second))
				}
			}
			return nil
		},
	})
	return r
}

func newMetricsRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
