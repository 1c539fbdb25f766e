package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

// A cover is what members with the same settings read of MongoDB, and which sinks they serve.
type cover struct {
	coverage change.Coverage
	sinks    []string
	node     string // one of the members
	members  int
	joined   int64 // of the member that joined first
}

// covers reports whether a member with the settings of c can take over any partition from one with
// those of d.
func (c *cover) covers(d *cover) bool {
	return c.coverage.Covers(d.coverage) && len(missing(d.sinks, c.sinks)) == 0
}

// missing returns which of the wanted are not there.
func missing(wanted, there []string) []string {
	return slices.DeleteFunc(slices.Clone(wanted), func(s string) bool { return slices.Contains(there, s) })
}

// coverOf returns the coverage in a member's heartbeat, nil if there is none.
func coverOf(seat *cluster.Member) *cover {
	if seat.Coverage == nil || seat.Garbled != nil {
		return nil
	}
	return &cover{coverage: *seat.Coverage, sinks: seat.Sinks, node: seat.Node, members: 1, joined: seat.Joined}
}

// widest returns the cover of the members that own partitions: one that no other cover exceeds,
// because a narrower member would move shared checkpoints past changes that it does not read. If
// several do not cover each other, it is that of most members, and then that of the member that
// joined first, so that a change of the settings moves every partition once. It is nil if no member
// names its coverage. Members that are about to lose their partitions do not count.
func (c *health) widest() (widest *cover) {
	var covers []*cover
	for i, m := range c.present[:c.nodes] {
		of := coverOf(&c.seats[i])
		stops := m.Status == cluster.StatusStopping || m.reported == cluster.StatusStopping
		stays := m.Serves() && !m.Lost() && !stops
		if of == nil || !stays {
			continue
		}
		at := slices.IndexFunc(covers, func(there *cover) bool { return there.covers(of) && of.covers(there) })
		if at < 0 {
			covers = append(covers, of)
			continue
		}
		covers[at].members++
		covers[at].joined = min(covers[at].joined, of.joined)
	}
	for _, of := range covers {
		exceeded := slices.ContainsFunc(covers, func(other *cover) bool { return other != of && other.covers(of) })
		if exceeded {
			continue
		}
		if widest == nil || of.precedes(widest) {
			widest = of
		}
	}
	return widest
}

// precedes reports whether more members have the coverage than the other one, or as many of them
// and the first joined earlier.
func (c *cover) precedes(other *cover) bool {
	if c.members != other.members {
		return c.members > other.members
	}
	return c.joined < other.joined
}

// narrow finds members that do not cover the widest, and reports each once.
func (c *health) narrow(m *member, seat *cluster.Member, widest *cover) {
	of := coverOf(seat)
	if m.Garbled {
		return // as it was
	}
	isJudged := of != nil && widest != nil && m.Serves()
	if !isJudged || of.covers(widest) {
		m.Narrow = false
		return
	}
	if !m.Narrow {
		c.say(event{What: eventRejected, Member: m, Code: fault.ClusterCoverage, Why: of.lacks(widest)})
	}
	m.Narrow = true
}

// lacks says what c does not cover of d.
func (c *cover) lacks(d *cover) string {
	if sinks := missing(d.sinks, c.sinks); len(sinks) > 0 {
		for i := range sinks {
			sinks[i], _, _ = strings.Cut(sinks[i], "#")
		}
		return fmt.Sprintf("it does not serve the sinks of %s as they are there: %s", d.node, strings.Join(sinks, ", "))
	}
	return "it does not read all of MongoDB that " + d.node + " reads, or both watch lists are long and differ"
}
