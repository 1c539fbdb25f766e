package admin

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/notice"
)

// A MoveList is what has moved, and what is wished.
type MoveList struct {
	// Recent are the last ones that have ended, the newest first, as far as the history of notices reaches.
	Recent  []RecentHandoff      `json:"recent"`
	Pinned  map[string]Directive `json:"pinned"`  // by partition
	Drained map[string]Directive `json:"drained"` // by node
}

// A Directive is where a partition is wished to be, empty for a node that is to have nothing, and by whom since when.
type Directive struct {
	To string    `json:"to,omitempty"`
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// A RecentHandoff is a handoff that has ended: partitions that one node gave to another in one transaction.
type RecentHandoff struct {
	At         time.Time          `json:"at"`
	From       string             `json:"from"`
	To         string             `json:"to"`
	Partitions []change.Partition `json:"partitions"`
	// HandedOver is how many of them were handed over; the others were given back for the other to claim.
	HandedOver int    `json:"handed_over"`
	Plan       uint64 `json:"plan"`
	Cause      string `json:"cause"`
	TookMS     int64  `json:"took_ms"`
}

// maxRecent is how many partitions' handoffs are told.
const maxRecent = 100

// ListMoves looks at a cluster.
func ListMoves(ctx context.Context, c Cluster) (*MoveList, error) {
	view, err := c.Roster.View(ctx)
	if err != nil {
		return nil, err
	}
	notices, _, err := c.History.Read(ctx, 0)
	if err != nil {
		return nil, err
	}
	l := &MoveList{Recent: recentHandoffs(notices), Pinned: map[string]Directive{}, Drained: map[string]Directive{}}
	l.addDirectives(view.Directives)
	return l, nil
}

func (l *MoveList) addDirectives(w cluster.Directives) {
	for p, pin := range w.Pinned {
		l.Pinned[strconv.Itoa(int(p))] = Directive{To: pin.To, By: pin.By, At: pin.At}
	}
	for node, drain := range w.Drained {
		l.Drained[node] = Directive{By: drain.By, At: drain.At}
	}
}

// recentHandoffs reads what the notices tell of handoffs, the newest first.
func recentHandoffs(notices []notice.Notice) []RecentHandoff {
	all := []RecentHandoff{}
	notices = slices.DeleteFunc(slices.Clone(notices), func(n notice.Notice) bool { return n.Kind != notice.KindHandedOver })
	slices.SortStableFunc(notices, func(a, b notice.Notice) int { return b.At.Compare(a.At) })
	told := 0
	for _, n := range notices {
		r := RecentHandoff{At: n.At}
		value, err := json.Marshal(n.Fields)
		if err != nil || json.Unmarshal(value, &r) != nil {
			continue // of another version, or shortened
		}
		if told >= maxRecent {
			break
		}
		told += len(r.Partitions)
		all = append(all, r)
	}
	return all
}
