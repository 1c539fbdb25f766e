package wiring

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/sink"
	"github.com/mongostream/streamer/sink/file"
	"github.com/mongostream/streamer/streamer"
)

// buildSinks makes the sinks of the configuration.
func (s *Service) buildSinks(ctx context.Context) error {
	metrics := sink.NewMetrics(s.registry)
	stdout := file.NewOutput(s.opts.Stdout)
	for _, cfg := range s.opts.Config.Sinks {
		subscriptions, err := backend.Subscriptions(cfg, s.opts.Config)
		if err != nil {
			return err
		}
		open := func() (target, letters sink.Target, err error) {
			return backend.Targets(cfg, s.origin.Cluster, s.origin.Partitions, stdout)
		}
		target, letters, err := open()
		if err != nil {
			return err
		}
		shared, err := s.node.Share(context.WithoutCancel(ctx), cfg.Subscriber(), subscriptions)
		if err != nil {
			return err
		}
		switch {
		case cfg.Start.Origin:
		case cfg.Start.Snapshot:
			shared.Begin(streamer.StartSnapshot, time.Time{})
		case cfg.Start.Oldest:
			shared.Begin(streamer.StartEarliest, time.Time{})
		case cfg.Start.At.IsZero():
			shared.Begin(streamer.StartNow, time.Time{})
		default:
			shared.Begin(streamer.StartTime, cfg.Start.At)
		}
		k := sink.New(sink.Config{
			Name: cfg.Name, Subscriber: cfg.Subscriber(), Cluster: s.origin.Cluster, Format: sink.Format(cfg.Format), LongText: cfg.LongText,
			Attempts: cfg.Attempts, DeadLetter: letters,
			Breaker: s.breakers.Breaker("sink "+cfg.Name, isAway), Board: s.board, Logger: s.logger, Metrics: metrics,
			AckTimeout: backend.AckTimeout(cfg), Renew: open, CheckNamespaces: checkSink(s.node.Hub(), subscriptions), Stall: s.opts.StallSink, Tracer: s.tracer,
		}, shared, target)
		s.sinks = append(s.sinks, k)
		s.components.Add(health.Component{Slug: "sink-" + cfg.Name, Age: k.Age, Restart: func() error { k.Restart(); return nil }})
	}
	return nil
}

// checkSink returns a function that asks whether anything can come of the subscriptions of a sink.
func checkSink(hub *delivery.Hub, subscriptions []delivery.Subscription) func(context.Context) ([]string, error) {
	return func(ctx context.Context) (missing []string, err error) {
		all := make([]change.Namespace, len(subscriptions))
		for i, sub := range subscriptions {
			f := sub.Program.Filter()
			all[i] = change.Namespace{DB: f.DB, Coll: f.Coll}
		}
		names := hub.Names(ctx, all) // together: each alone would be a request of its own
		for i, ns := range all {
			text, err := hub.CheckNamespace(ctx, ns, names)
			if err != nil {
				return nil, fmt.Errorf("subscription %d: %w", i+1, err)
			}
			if text != "" {
				missing = append(missing, text)
			}
		}
		return missing, nil
	}
}

// isAway reports whether an error means that a target is unreachable: a target that refuses a
// change, or has one of a later owner, answers.
func isAway(err error) bool {
	_, refused := errors.AsType[*sink.RefusedError](err)
	return err != nil && !refused && !errors.Is(err, sink.ErrReplaced) && !errors.Is(err, context.Canceled)
}

// Sinks returns the sinks.
func (s *Service) Sinks() []*sink.Sink { return s.sinks }

// runSink runs a sink until its session ends. One whose session has ended because an operator must
// act ends alone: the node serves others.
func (s *Service) runSink(ctx context.Context, k *sink.Sink) error {
	if err := k.Run(ctx); err != nil {
		s.logger.Warn("sink ended", "sink", k.Status().Name, "error", err)
	}
	return nil
}

// followSinks pauses and resumes sinks as operators have said at some node, also before this one
// started, until the context ends.
func (s *Service) followSinks(ctx context.Context) {
	var last uint64
	for len(s.sinks) > 0 {
		notices, _, err := s.board.Follow(ctx, last)
		if err != nil {
			return
		}
		for _, n := range notices {
			last = n.ID
			name, _ := n.Fields["sink"].(string)
			if n.Kind != notice.KindOperated || name == "" {
				continue
			}
			for _, k := range s.sinks {
				if k.Status().Name != name {
					continue
				}
				switch n.Fields["do"] {
				case admin.PauseSink:
					k.Pause()
				case admin.ResumeSink:
					k.Resume()
				}
			}
		}
	}
}
