package profile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/mongostream/streamer/fault"
)

// Config configures a Profiler. Its zero value does nothing.
type Config struct {
	// Listen is a loopback address, host:port. Empty means no listener.
	Listen string
	// Protect wraps the handler at Listen and authorizes requests. By default every request is
	// allowed.
	Protect func(http.Handler) http.Handler
	// DumpDir is the folder for flight recordings; it is made where it is missing. Empty means that
	// none are written.
	DumpDir string
	// DumpMax is how many recordings stay in the folder. Defaults to 10.
	DumpMax int
	// LagThreshold is the lag from which a recording is written. Defaults to 30 s.
	LagThreshold time.Duration
	// StallThreshold is how long a late partition may make no progress before a recording is
	// written. Defaults to 30 s.
	StallThreshold time.Duration
	// Partitions returns the present progress of the partitions; it must not block. Required with
	// DumpDir.
	Partitions func() []Partition
	// Logger defaults to one that discards.
	Logger *slog.Logger
}

// A Profiler serves profiles and writes flight recordings.
type Profiler struct {
	cfg      Config
	logger   *slog.Logger
	listener net.Listener // nil without one
	flight   *flight      // nil when nothing is recorded
}

// New binds the address and makes the folder, so that whatever is wrong with them is found before
// anything runs; Run must follow, or Close.
func New(ctx context.Context, cfg Config) (*Profiler, error) {
	cfg.LagThreshold = cmp.Or(cfg.LagThreshold, 30*time.Second)
	cfg.StallThreshold = cmp.Or(cfg.StallThreshold, 30*time.Second)
	p := &Profiler{cfg: cfg, logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))}
	if cfg.Listen == "" && cfg.DumpDir == "" {
		return p, nil
	}
	var err error
	if p.flight, err = newFlight(cfg.DumpDir, cmp.Or(cfg.DumpMax, 10)); err != nil {
		return nil, fault.Newf(fault.ConfigBadValue, "debug.dump_dir: %w", err)
	}
	if cfg.Listen == "" {
		return p, nil
	}
	p.listener, err = listen(ctx, cfg.Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fault.Newf(fault.NodeAddressInUse, "debug.listen: %w", err)
	case err != nil:
		return nil, fault.Newf(fault.ConfigBadValue, "debug.listen: %w", err)
	}
	return p, nil
}

// errPublic says that an address can be reached from elsewhere.
var errPublic = errors.New("is no loopback address: profiles are for this machine only")

// listen binds a loopback address. A name is resolved once, and its address is checked.
func listen(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", address, err)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && !ip.IsLoopback() {
		return nil, fmt.Errorf("%q %w", address, errPublic)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if bound, ok := l.Addr().(*net.TCPAddr); !ok || !bound.IP.IsLoopback() {
		_ = l.Close()
		return nil, fmt.Errorf("%q %w", address, errPublic)
	}
	return l, nil
}

// Addr returns the address of the listener, "" without one.
func (p *Profiler) Addr() string {
	if p.listener == nil {
		return ""
	}
	return p.listener.Addr().String()
}

// Close releases the address if Run was never called.
func (p *Profiler) Close() {
	if p.listener != nil {
		_ = p.listener.Close()
	}
}

// Run records, serves and watches until the context ends.
func (p *Profiler) Run(ctx context.Context) {
	if p.flight == nil {
		<-ctx.Done()
		return
	}
	if err := p.flight.start(); err != nil {
		p.logger.Warn("there will be no flight recordings", "error", err)
	}
	defer p.flight.stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	if p.listener != nil {
		p.logger.Info("profiles are served", "address", p.Addr())
		wg.Go(func() { p.runServer(ctx) })
	}
	if p.cfg.DumpDir != "" {
		wg.Go(func() { p.runWatch(ctx, p.flight.dump) })
	}
	<-ctx.Done()
}

// runServer serves HTTP until the context ends. Profiles in progress are cut off then.
func (p *Profiler) runServer(ctx context.Context) {
	server := &http.Server{Handler: p.handler(), ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
		p.logger.Warn("profiles are served no more", "error", err)
	}
}

func (p *Profiler) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/flight", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", `attachment; filename="flight.trace"`)
		if err := p.flight.write(w); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	if p.cfg.Protect != nil {
		return p.cfg.Protect(mux)
	}
	return mux
}
