package move

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/handoff/ledger"
	"github.com/mongostream/streamer/notice"
)

// A List is what moves, what has moved, and what is wished.
type List struct {
	Running []Running `json:"running"`
	// Recent are the last ones that have ended, the newest first, as far as the history of notices reaches.
	Recent  []Recent          `json:"recent"`
	Pinned  map[string]Wished `json:"pinned"`  // by partition
	Drained map[string]Wished `json:"drained"` // by node
}

// A Wished is where a partition is wished to be, empty for a node that is to have nothing, and by whom since when.
type Wished struct {
	To string    `json:"to,omitempty"`
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// A Running is a handoff in the ledger.
type Running struct {
	Partition change.Partition `json:"partition"`
	From      string           `json:"from"`
	To        string           `json:"to"`
	Phase     ledger.Phase     `json:"phase"`
	Since     time.Time        `json:"since"`
	Cause     string           `json:"cause"`
	By        string           `json:"by"`
}

// A Recent is what became of handoffs that ended together.
type Recent struct {
	ledger.Digest

	At time.Time `json:"at"`
}

// mostRecent is how many partitions' handoffs are told.
const mostRecent = 100

// Look looks at a cluster.
func Look(ctx context.Context, c Cluster) (*List, error) {
	view, err := c.Roster.View(ctx)
	if err != nil {
		return nil, err
	}
	records, err := c.Ledger.List(ctx)
	if err != nil {
		return nil, err
	}
	notices, _, err := c.History.Read(ctx, 0)
	if err != nil {
		return nil, err
	}
	l := &List{Running: []Running{}, Recent: recent(notices), Pinned: map[string]Wished{}, Drained: map[string]Wished{}}
	for _, r := range records {
		l.Running = append(l.Running, Running{
			Partition: r.Partition, From: r.From.Node, To: r.To.Node, Phase: r.Phase, Since: r.Started, Cause: r.Cause, By: r.By,
		})
	}
	l.wishes(view.Wishes)
	return l, nil
}

func (l *List) wishes(w roster.Wishes) {
	for p, pin := range w.Pinned {
		l.Pinned[strconv.Itoa(int(p))] = Wished{To: pin.To, By: pin.By, At: pin.At}
	}
	for node, drain := range w.Drained {
		l.Drained[node] = Wished{By: drain.By, At: drain.At}
	}
}

// recent reads what the notices tell of handoffs, the newest first.
func recent(notices []notice.Notice) []Recent {
	all := []Recent{}
	notices = slices.DeleteFunc(slices.Clone(notices), func(n notice.Notice) bool { return n.Kind != notice.KindHandedOver })
	slices.SortStableFunc(notices, func(a, b notice.Notice) int { return b.At.Compare(a.At) })
	told := 0
	for _, n := range notices {
		var digests []ledger.Digest
		value, err := json.Marshal(n.Fields["handoffs"])
		if err != nil || json.Unmarshal(value, &digests) != nil {
			continue // of another version, or shortened
		}
		for _, d := range slices.Backward(digests) {
			if told >= mostRecent {
				return all
			}
			told += len(d.Partitions)
			all = append(all, Recent{Digest: d, At: n.At})
		}
	}
	return all
}
