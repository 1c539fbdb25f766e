package status

import (
	"fmt"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/notice"
)

// Lost tells operators of a span that subscribers may have missed.
func Lost(g checkpoint.Gap) notice.Notice {
	return notice.Notice{
		Channel: notice.Resync, Kind: notice.KindResync, Level: notice.Critical,
		Text: fmt.Sprintf("partition %d has lost what was in the log from %s to %s", g.Partition, g.From.Time.Time(), g.To.Time.Time()),
		Fields: map[string]any{
			"partition": int(g.Partition), "lost_from": g.From.Time.String(), "lost_to": g.To.Time.String(), "reason": g.Reason, "epoch": g.Epoch.String(),
		},
	}
}

// Rewound tells operators, and the other nodes, that a partition goes on from where an operator has put its mark.
func Rewound(t change.Term, at change.Position) notice.Notice {
	return notice.Notice{
		Channel: notice.Resync, Kind: notice.KindRewound, Level: notice.Warning,
		Text:   fmt.Sprintf("an operator has moved partition %d back to %s: what follows is delivered again", t.Partition, at.Time),
		Fields: map[string]any{"partition": int(t.Partition), "epoch": t.Epoch.String()},
	}
}

// Failed tells operators of a partition that waits for one of them.
func Failed(p change.Partition, err error) notice.Notice {
	return notice.Notice{
		Channel: notice.Health, Kind: notice.KindPartitionFailed, Level: notice.Critical,
		Text:   fmt.Sprintf("partition %d has stopped: %v", p, err),
		Fields: map[string]any{"partition": int(p), "code": string(fault.Of(err))},
	}
}
