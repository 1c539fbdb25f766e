package wiring

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/supervisor"
)

// buildComponents makes the node's components, and the supervisor of all nodes' components.
func (s *Service) buildComponents() error {
	cfg := s.opts.Config.Supervisor
	s.components = health.NewComponents(health.ComponentsConfig{
		Process: s.opts.Process, Uptime: s.node.Uptime, Stalled: cfg.StallAfter, Lost: cfg.LivezAfter,
	})
	transport, err := s.vitalsTransport()
	if err != nil {
		return err
	}
	s.ordered = make(chan supervisor.Order, 1)
	s.supervisor = supervisor.New(supervisor.Config{
		Member: cluster.Identity{Node: s.opts.Config.Node.ID, Process: s.opts.Process}, Host: hostname(),
		Settings:   supervisor.Settings{Interval: cfg.HeartbeatInterval, Misses: cfg.MissedHeartbeatsToAlert, AutoRestart: cfg.AutoRestart},
		StallAfter: cfg.StallAfter, Budget: cfg.RestartBudget, Window: cfg.RestartWindow, Ping: string(cfg.PingURL),
		Members: func() (cluster.View, time.Duration) { return s.member.Supervised() },
		Leads:   func() bool { return s.member.Leads() },
		Restart: s.components.Restart,
		Leave: func(o supervisor.Order) {
			select {
			case s.ordered <- o:
			default: // it leaves already
			}
		},
		Transport: transport, Board: s.board, Logger: s.logger, Registerer: s.registry,
	}, s.supervised)

	for _, c := range s.kinds() {
		s.components.Add(c)
	}
	return nil
}

// kinds returns the components that a node has, whatever sinks it has beside them.
func (s *Service) kinds() []health.Component {
	hub := s.node.Hub()
	restart := func(f func()) func() error { return func() error { f(); return nil } }
	all := []health.Component{
		{Slug: "tail", Age: s.tailAge()},
		{Slug: "hub", Age: hub.Age, Restart: restart(hub.Restart)},
		{Slug: "checkpoints", Age: s.node.CheckpointAge},
		{Slug: "lease", Age: func() time.Duration { return s.member.LeaseAge() }},
		{Slug: "leader", Age: func() time.Duration { return s.member.LeaderAge() }},
		{Slug: "snapshots", Age: s.ofMongo(hub.SnapshotAge), Restart: restart(hub.RestartSnapshots)},
		{Slug: "supervisor", Age: s.supervisor.Age},
	}
	if r := s.channels.recorder; r != nil {
		all = append(all, health.Component{Slug: "notices", Age: r.Age})
	}
	if w := s.channels.webhook; w != nil {
		all = append(all, health.Component{Slug: "webhook", Age: w.Age})
	}
	return all
}

// supervise looks after the components of all nodes while this one serves.
func (s *Service) supervise(ctx context.Context) {
	s.notifySystemd(daemon.SdNotifyReady)
	s.supervisor.Run(ctx)
}

// ofMongo is the age of a component that waits for MongoDB: up to when MongoDB last answered
// others.
func (s *reading) ofMongo(age func() time.Duration) func() time.Duration {
	return func() time.Duration {
		return max(age()-time.Since(s.extent.Answered()), 0)
	}
}

// tailSlack is how late a reply of MongoDB may be, beyond the requested wait.
const tailSlack = time.Second

// tailAge returns a function that says for how long nothing has come of the log although MongoDB
// answers others, the tail is not held back by those who read it, and it does not wait after a
// failure. It is for one goroutine.
func (s *reading) tailAge() func() time.Duration {
	var p health.Progress
	return func() time.Duration {
		log := s.log.Stats()
		waits := log.Open && !log.Paused && !log.Full && !s.source.Resting() && s.extent.Answered().After(log.LastReply.Add(s.source.MaxAwait()+tailSlack))
		return p.Age(uint64(log.LastReply.UnixNano()), waits, time.Now())
	}
}

// hostname is the name of this machine, empty while unknown.
func hostname() string {
	name, _ := os.Hostname()
	return name
}

// page returns the URL of the status page.
func (s *Service) page() string {
	u := url.URL{Scheme: "http", Host: Advertised(s.Addr()), Path: "/"}
	if s.opts.Config.HTTP.TLS.CertFile != "" {
		u.Scheme = "https"
	}
	return u.String()
}

// vitalsURL is where other nodes ask how the node's components do.
func (s *Service) vitalsURL() string {
	u := url.URL{Scheme: "http", Host: Advertised(s.Probes())}
	cfg := s.opts.Config.HTTP
	if s.probing == nil && cfg.TLS.CertFile != "" {
		u.Scheme = "https"
	}
	if cfg.Advertise != "" {
		u.Host = cfg.Advertise
	}
	return u.String()
}

// vitalsTransport asks nodes: their certificates must come from the authorities of the
// configuration. It shows the node's own to those that want one.
func (s *Service) vitalsTransport() (*http.Transport, error) {
	cfg := s.opts.Config
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := cfg.Supervisor.CAFile; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fault.Newf(fault.ConfigUnreadable, "supervisor.ca_file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fault.Newf(fault.ConfigBadValue, "supervisor.ca_file %s holds no certificate", file)
		}
	}
	if cfg.HTTP.TLS.ClientCAFile != "" {
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cfg.HTTP.TLS.CertFile, cfg.HTTP.TLS.KeyFile)
			return &pair, err
		}
	}
	return &http.Transport{TLSClientConfig: t, DialContext: (&net.Dialer{Timeout: cfg.Supervisor.HeartbeatInterval / 3}).DialContext}, nil
}

// leaveTimeout is how much longer than its own timeouts a node may take to stop when it was ordered
// to.
const leaveTimeout = 10 * time.Second

// awaitEnd waits until everything has ended. If the supervisor orders a restart of the process, the
// process stops as planned and ends with an error; it ends in time even if a component hangs.
func (s *Service) awaitEnd(stop func(), wait func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- wait() }()
	select {
	case err := <-ended:
		return err
	case o := <-s.ordered:
		s.logger.Warn("draining: a restart of this node was ordered", "slug", o.Slug, "cause", string(o.Cause), "by", o.By)
		stop()
		shutdown := s.opts.Config.Reliability.Shutdown
		limit := time.NewTimer(shutdown.DrainTimeout + shutdown.FlushTimeout + shutdown.CheckpointTimeout + s.opts.Config.Handoff.Overlap + leaveTimeout)
		defer limit.Stop()
		restart := fault.Newf(fault.NodeRestart, "%s made no progress (%s); ordered by node %s", o.Slug, o.Cause, o.By)
		select {
		case err := <-ended:
			return errors.Join(restart, err)
		case <-limit.C:
			return restart
		}
	}
}
