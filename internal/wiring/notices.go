package wiring

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/internal/etcd"
	"github.com/mongostream/streamer/internal/etcd/bulletin"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/notice/history"
	"github.com/mongostream/streamer/notice/webhook"
)

// channels are the ways that notices take beside the board's own: the log, and /v1/notices.
type channels struct {
	history  history.Store     // nil without etcd
	recorder *history.Recorder // nil without a history
	webhook  *webhook.Sender   // nil where none is configured
}

// newBoard makes the board that the node's parts post on.
func (s *Service) newBoard() *notice.Board {
	return notice.NewBoard(notice.Config{Node: s.opts.Config.Node.ID, Keep: s.opts.Config.Notices.Keep, Logger: s.logger, Registerer: s.registry})
}

// keepHistory has the cluster's notices kept in etcd.
func (s *Service) keepHistory(client *etcd.Client) {
	cfg := s.opts.Config.Notices
	s.channels.history = bulletin.New(client, bulletin.Config{Process: s.opts.Process, Keep: cfg.Keep, TTL: cfg.TTL})
}

// openChannels puts the cluster's history on the board, before anybody looks at it, and makes what carries notices on. A history that
// cannot be read is read later.
func (s *Service) openChannels(ctx context.Context) error {
	cfg := s.opts.Config
	c := &s.channels
	if c.history != nil {
		c.recorder = history.New(history.Config{Bound: cfg.Notices.Keep, Logger: s.logger, Registerer: s.registry}, s.board, c.history)
		if err := c.recorder.Load(ctx); err != nil {
			s.logger.Warn("the cluster's history of notices cannot be read yet", "error", err)
		}
	}
	if hook := cfg.Notices.Webhook; hook.URL != "" {
		c.webhook = webhook.New(webhook.Config{
			URL: string(hook.URL), Secret: string(hook.Secret), Cluster: cfg.Cluster.ID, Node: cfg.Node.ID, Lowest: notice.Severity(hook.Severity),
			Timeout: hook.Timeout, Attempts: hook.Attempts, Window: hook.Window, Burst: hook.Burst, Queue: hook.Queue, Logger: s.logger, Registerer: s.registry,
		}, s.board)
		s.logger.Info("notices are posted", "url", hook.URL)
	}
	return ctx.Err()
}

// run carries notices until the context ends, and then what was posted before that.
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

// announced is how gateways are told of a notice; ok is false for those of the past, which are for people.
func announced(n notice.Notice) (told fanout.Notice, ok bool) {
	told = fanout.Notice{Kind: n.Kind, Text: n.Text, At: n.At}
	if n.Relayed {
		told.Text = n.Node + ": " + n.Text
	}
	return told, !n.Past
}

// rewoundElsewhere tells this node's gateways of a rewind that its owner has told its own.
func (s *Service) rewoundElsewhere(ctx context.Context, n notice.Notice) {
	number, ok := n.Fields["partition"].(float64) // it has come as JSON
	p := change.Partition(number)
	if !ok || int(p) >= s.opts.Config.Cluster.Partitions {
		return
	}
	marks, err := s.store.History(ctx, p)
	if i := slices.IndexFunc(marks, rewound); i >= 0 {
		s.hub.Rewound(p, marks[i].Position)
		return
	}
	s.logger.Warn("gateways could not be told of a rewind", "partition", p, "error", err)
}

// rewound reports whether an operator has put a mark where it is.
func rewound(m checkpoint.Mark) bool {
	return m.Reason == checkpoint.ReasonRewind || m.Reason == checkpoint.ReasonImport
}

const (
	// recentlyPosted is how long ago a notice may have been posted for a gateway that begins to be told of it, recentlyMost how many are.
	recentlyPosted = 30 * time.Minute
	recentlyMost   = 10
)

// recentNotices returns what a gateway that begins is told of what was posted before.
func recentNotices(board *notice.Board, now time.Time) (recent []fanout.Notice) {
	posted, _ := board.Since(0)
	for _, n := range posted[max(len(posted)-recentlyMost, 0):] {
		if now.Sub(n.At) <= recentlyPosted {
			told, _ := announced(n)
			recent = append(recent, told)
		}
	}
	return recent
}
