package handoff

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

// A History is the handoffs that have ended, and the directives of now.
type History struct {
	// Recent are the last handoffs, the newest first, as far as the history of notices reaches.
	Recent  []Ended              `json:"recent"`
	Pinned  map[string]Directive `json:"pinned"`  // by partition
	Drained map[string]Directive `json:"drained"` // by node
}

// A Directive is an operator's request: a partition at the node To, or a drained node, which has no
// To.
type Directive struct {
	To string    `json:"to,omitempty"`
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// An Ended is a handoff that has ended: partitions that moved from one node to another in one
// transaction.
type Ended struct {
	At         time.Time          `json:"at"`
	From       string             `json:"from"`
	To         string             `json:"to"`
	Partitions []change.Partition `json:"partitions"`
	// HandedOver is how many of them were transferred; the others were returned, for the plan's
	// node to claim.
	HandedOver int    `json:"handed_over"`
	Plan       uint64 `json:"plan"`
	Cause      string `json:"cause"`
	TookMS     int64  `json:"took_ms"`
}

// maxRecent bounds the partitions in a History.
const maxRecent = 100

// ReadHistory reads the History of a cluster.
func ReadHistory(ctx context.Context, c Cluster) (*History, error) {
	view, err := c.View.View(ctx)
	if err != nil {
		return nil, err
	}
	notices, _, err := c.Notices.Read(ctx, 0)
	if err != nil {
		return nil, err
	}
	h := &History{Recent: recent(notices), Pinned: map[string]Directive{}, Drained: map[string]Directive{}}
	h.addDirectives(view.Directives)
	return h, nil
}

func (h *History) addDirectives(of cluster.Directives) {
	for p, pin := range of.Pinned {
		h.Pinned[strconv.Itoa(int(p))] = Directive{To: pin.To, By: pin.By, At: pin.At}
	}
	for node, drain := range of.Drained {
		h.Drained[node] = Directive{By: drain.By, At: drain.At}
	}
}

// recent returns the handoffs in the notices, newest first.
func recent(notices []notice.Notice) []Ended {
	all := []Ended{}
	notices = slices.DeleteFunc(slices.Clone(notices), func(n notice.Notice) bool { return n.Kind != notice.KindHandedOver })
	slices.SortStableFunc(notices, func(a, b notice.Notice) int { return b.At.Compare(a.At) })
	told := 0
	for _, n := range notices {
		r := Ended{At: n.At}
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
