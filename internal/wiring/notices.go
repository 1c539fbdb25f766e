package wiring

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/notice"
)

// channels are the ways that notices take beside the board's own: the log, and /v1/notices.
type channels struct {
	history  notice.Store     // nil without etcd
	recorder *notice.Recorder // nil without a history
	webhook  *notice.Webhook  // nil where none is configured
}

// newBoard makes the board that the node's parts post on.
func (s *Service) newBoard() *notice.Board {
	return notice.NewBoard(notice.Config{Node: s.opts.Config.Node.ID, Keep: s.opts.Config.Notices.Keep, Logger: s.logger, Registerer: s.registry})
}

// keepHistory has the cluster's notices kept in etcd.
func (s *Service) keepHistory(client *etcd.Client) {
	cfg := s.opts.Config.Notices
	s.channels.history = etcd.NewNoticeStore(client, etcd.NoticeConfig{Process: s.opts.Process, Keep: cfg.Keep, TTL: cfg.TTL})
}

// openChannels puts the cluster's history on the board, before anybody looks at it, and makes what
// carries notices on. A history that cannot be read is read later.
func (s *Service) openChannels(ctx context.Context) error {
	cfg := s.opts.Config
	c := &s.channels
	if c.history != nil {
		c.recorder = notice.NewRecorder(notice.RecorderConfig{Bound: cfg.Notices.Keep, Logger: s.logger, Registerer: s.registry}, s.board, c.history)
		if err := c.recorder.Load(ctx); err != nil {
			s.logger.Warn("reading notice history failed yet", "error", err)
		}
	}
	if hook := cfg.Notices.Webhook; hook.URL != "" {
		c.webhook = notice.NewWebhook(notice.WebhookConfig{
			URL: string(hook.URL), Secret: string(hook.Secret), Cluster: cfg.Cluster.ID, Node: cfg.Node.ID, Lowest: notice.Severity(hook.Severity),
			Timeout: hook.Timeout, Attempts: hook.Attempts, Window: hook.Window, Burst: hook.Burst, Queue: hook.Queue, Logger: s.logger, Registerer: s.registry,
		}, s.board)
		s.logger.Info("notices are posted", "url", hook.URL)
	}
	return ctx.Err()
}

// run delivers notices until the context ends, and then those that were posted before.
func (c *channels) run(ctx context.Context) {
	var wg sync.WaitGroup
	if c.recorder != nil {
		wg.Go(func() { c.recorder.Run(ctx) })
	}
	if c.webhook != nil {
		wg.Go(func() { c.webhook.Run(ctx) })
	}
	wg.Wait()
}

// recorded waits until posted notices are in the history, if there is one.
func (c *channels) recorded(ctx context.Context) error {
	if c.recorder == nil {
		return nil
	}
	return c.recorder.Flush(ctx)
}

// announced returns the form of a notice for gateways; ok is false for past notices, which are for
// people, and for those about other gateways, which name subscribers.
func announced(n notice.Notice) (told delivery.Notice, ok bool) {
	told = delivery.Notice{Kind: n.Kind, Text: n.Text, At: n.At, Private: !n.Public(), Namespaces: n.Namespaces()}
	if n.Relayed {
		told.Text = n.Node + ": " + n.Text
	}
	return told, !n.Past && n.History() == notice.Service
}

// shown returns the form of a notice for a client of /v1/notices; ok is false if the client must
// not get it.
func shown(ctx context.Context, n notice.Notice) (told notice.Notice, ok bool) {
	i := access.From(ctx)
	if i.Operates() {
		return n, true
	}
	names, some := i.Readable(n.Namespaces())
	return n.Narrowed(names), some && n.Public()
}

// rewoundElsewhere makes this node read the new position of a subscriber that an operator has
// moved, after the notice of another node or of the operator's command.
func (s *Service) rewoundElsewhere(n notice.Notice) {
	if subscriber, ok := n.Fields["subscriber"].(string); ok {
		s.node.Rewound(subscriber)
	}
}

const (
	// recentlyPosted bounds the age of the earlier notices that a new gateway gets, recentlyMost
	// their number.
	recentlyPosted = 30 * time.Minute
	recentlyMost   = 10
)

// recentNotices returns the earlier notices for a new gateway.
func recentNotices(board *notice.Board, now time.Time) (recent []delivery.Notice) {
	posted, _ := board.Since(0)
	posted = slices.DeleteFunc(posted, func(n notice.Notice) bool { return n.History() != notice.Service })
	for _, n := range posted[max(len(posted)-recentlyMost, 0):] {
		if now.Sub(n.At) <= recentlyPosted {
			told, _ := announced(n)
			recent = append(recent, told)
		}
	}
	return recent
}
