package streamer

import (
	"fmt"
	"strings"

	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/notice"
	"github.com/mongostream/streamer/oplog"
)

// lostNotice returns the notice about a loss. A collection that was renamed onto another one is no
// fault of the service: subscribers read it again, and nothing is missing from the log.
func lostNotice(l oplog.Loss) notice.Notice {
	level := notice.Critical
	text := fmt.Sprintf("changes from %s to %s may have been missed (%s)", l.From.Time.Time(), l.To.Time.Time(), l.Reason)
	if l.Reason == gap.Renamed {
		level = notice.Info
		text = fmt.Sprintf("a collection was renamed onto %s: its subscribers are told to read it again", strings.Join(l.Namespaces, ", "))
	}
	return notice.Notice{
		Channel: notice.Resync, Kind: notice.KindResync, Level: level, Text: text,
		Fields: map[string]any{
			"lost_from": l.From.Time.String(), "lost_to": l.To.Time.String(), "reason": string(l.Reason), "namespaces": l.Namespaces,
		},
	}
}

// lossNotice returns the notice about a loss of a shared subscriber alone.
func lossNotice(subscriber string, l *delivery.Loss) notice.Notice {
	return notice.Notice{
		Channel: notice.Health, Kind: notice.KindSubscriberLoss, Level: notice.Critical,
		Text: fmt.Sprintf("subscriber %s may have missed changes from %s to %s (%s)", subscriber, l.From.Time.Time(), l.To.Time.Time(), l.Reason),
		Fields: map[string]any{
			"subscriber": subscriber, "lost_from": l.From.Time.String(), "lost_to": l.To.Time.String(), "reason": l.Reason, "namespaces": l.Namespaces,
		},
	}
}

func rewoundNotice(c checkpoint.Checkpoint) notice.Notice {
	return notice.Notice{
		Channel: notice.Resync, Kind: notice.KindRewound, Level: notice.Warning,
		Text:   fmt.Sprintf("an operator rewound subscriber %s to %s; later changes are redelivered", c.Subscriber, c.Earliest().Time),
		Fields: map[string]any{"subscriber": c.Subscriber, "generation": c.Generation},
	}
}
