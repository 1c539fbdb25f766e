package supervisor

import (
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/health"
)

// A registry knows the supervised components. It is used by one goroutine.
type registry struct {
	host  string        // of this machine
	keep  time.Duration // how long a node is missed that has left without a word
	known map[string]known
}

// A known is a node as it was last seen.
type known struct {
	member cluster.Member
	gone   time.Time // since when it is not there; zero while it is
}

// A round is the requests of one sweep, and the checks that need no request.
type round struct {
	ask       []target
	seen      []check
	unwatched []string
	nodes     int
}

// round returns the components of a view of the cluster. Nodes that start or stop are skipped.
func (r *registry) round(now time.Time, view cluster.View) (all round) {
	if r.known == nil {
		r.known = make(map[string]known)
	}
	there := make(map[string]bool)
	for _, m := range view.Members {
		there[m.Node] = true
		if m.Garbled != nil {
			continue // the previous knowledge remains valid
		}
		r.known[m.Node] = known{member: m}
	}
	for node, k := range r.known {
		m := k.member
		switch {
		case m.Status == cluster.StatusStopping || m.Status == cluster.StatusStarting:
			if !there[node] {
				delete(r.known, node)
			}
			continue
		case there[node]:
			r.add(&all, m)
			continue
		case k.gone.IsZero():
			k.gone = now
			r.known[node] = k
		case now.Sub(k.gone) > r.keep:
			delete(r.known, node)
			continue
		}
		for _, component := range m.Components {
			all.seen = append(all.seen, check{
				target: target{Slug: node + "/" + component, Node: node, Component: component, Process: m.Process},
				Miss:   gone, Detail: "the node has left the cluster without a word", Silent: true,
			})
		}
	}
	slices.Sort(all.unwatched)
	return all
}

// add adds the components of a node.
func (r *registry) add(all *round, m cluster.Member) {
	base, err := url.Parse(m.HTTP)
	isReachable := err == nil && m.HTTP != "" && (m.Host == r.host || !isLoopback(base.Hostname()))
	if !isReachable || len(m.Components) == 0 {
		all.unwatched = append(all.unwatched, m.Node)
		return
	}
	all.nodes++
	for _, component := range m.Components {
		all.ask = append(all.ask, target{
			Slug: m.Node + "/" + component, Node: m.Node, Component: component, Process: m.Process,
			URL: strings.TrimRight(m.HTTP, "/") + health.VitalPath + component,
		})
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
