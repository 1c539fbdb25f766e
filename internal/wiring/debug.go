package wiring

import (
	"context"
	"net/http"

	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/profile"
)

// openProfiler prepares profiles and flight recordings, as far as they are configured.
func (s *Service) openProfiler(ctx context.Context) (err error) {
	cfg := s.opts.Config.Debug
	s.profiler, err = profile.New(ctx, profile.Config{
		Listen: cfg.Listen, DumpDir: cfg.DumpDir, DumpMax: cfg.DumpMax, LagThreshold: cfg.LagThreshold, StallThreshold: cfg.StallThreshold,
		Partitions: s.progress, Logger: s.logger,
		Protect: func(next http.Handler) http.Handler { return access.Local(cfg.Listen, nil, next) },
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, s.profiler.Close)
	return nil
}

// progress returns the progress of the partitions.
func (s *Service) progress() []profile.Partition {
	status := s.node.Status()
	partitions := make([]profile.Partition, len(status))
	for i, p := range status {
		partitions[i] = profile.Partition{ID: int(p.Partition), Position: p.Position}
		if p.Lag != nil {
			partitions[i].Lag = *p.Lag
		}
	}
	return partitions
}
