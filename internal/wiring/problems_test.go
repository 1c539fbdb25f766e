package wiring

import (
	"slices"
	"testing"
	"time"

	"github.com/mongostream/streamer/cluster"
)

// A node that is silent is missing, and so is one whose lease ends while it is. One that leaves by
// itself has time to come back.
func TestNodesThatAreMissing(t *testing.T) {
	const second, silence, lease = time.Second, 5 * time.Second, 10 * time.Second
	beats := func(at time.Duration, nodes ...string) (members []cluster.Member) {
		for _, n := range nodes {
			members = append(members, cluster.Member{Heartbeat: cluster.Heartbeat{Node: n}, Beat: int64(at)})
		}
		return members
	}
	type look struct {
		at      time.Duration
		members []cluster.Member
		missing []string
		since   time.Duration
		awaited int
	}
	for name, looks := range map[string][]look{
		"silent, then gone": {
			{at: 0, members: beats(0, "b", "c")},
			{at: 4 * second, members: append(beats(4, "b"), beats(0, "c")...)},
			{at: 6 * second, members: append(beats(6, "b"), beats(0, "c")...), missing: []string{"c"}, since: 0},
			{at: 11 * second, members: beats(11, "b"), missing: []string{"c"}, since: 0},
			{at: 12 * second, members: beats(12, "b", "c")},
		},
		"left, and back": {
			{at: 0, members: beats(0, "b", "c")},
			{at: 2 * second, members: beats(2, "b"), awaited: 1},
			{at: 90 * second, members: beats(90, "b"), awaited: 1},
			{at: 91 * second, members: beats(91, "b", "c")},
			{at: 92 * second, members: beats(92, "b"), awaited: 1},
		},
		"dead, with a short lease": {
			{at: 0, members: beats(0, "b", "c")},
			{at: 6 * second, members: beats(6, "b"), missing: []string{"c"}, since: 0},
		},
		"dead, and heard late": { // 4 s before its lease ends
			{at: 0, members: beats(0, "b")},
			{at: 1 * second, members: beats(1, "b", "c")},
			{at: 5 * second, members: beats(5, "b"), missing: []string{"c"}, since: 1 * second},
		},
		"slow to leave": {
			{at: 0, members: append(beats(0, "b"), cluster.Member{Heartbeat: cluster.Heartbeat{Node: "c", Status: cluster.StatusStopping}, Beat: 1})},
			{at: 9 * second, members: beats(9, "b"), awaited: 1},
		},
		"left for good": {
			{at: 0, members: beats(0, "b", "c")},
			{at: 2 * second, members: beats(2, "b"), awaited: 1},
			{at: 2*second + restarting, members: beats(130, "b"), missing: []string{"c"}, since: 0},
		},
		"another one in its place": {
			{at: 0, members: beats(0, "b", "c")},
			{at: 2 * second, members: beats(2, "b"), awaited: 1},
			{at: 3 * second, members: beats(3, "b", "d")},
			{at: 4*second + restarting, members: beats(140, "b", "d")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var o observed
			begun := time.Unix(1000, 0)
			for _, l := range looks {
				missing, since, awaited := o.missing(l.members, 2, silence, lease, begun.Add(l.at))
				if !slices.Equal(missing, l.missing) || awaited != l.awaited || len(missing) > 0 && since.Sub(begun) != l.since {
					t.Errorf("after %v: %v are missing since %v, %d awaited", l.at, missing, since.Sub(begun), awaited)
				}
			}
		})
	}
}
