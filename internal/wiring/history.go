package wiring

import (
	"context"
	"time"

	"github.com/mongostream/streamer/internal/admin"
)

// runHistory takes samples for the charts of the status page until the context ends.
func (s *Service) runHistory(ctx context.Context) {
	tick := time.NewTicker(admin.HistoryEvery)
	defer tick.Stop()
	for {
		s.history.Note(time.Now(), s.member.Overview().Members, s.node.Subscribers())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
