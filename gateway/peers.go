package gateway

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/streamer"
)

// A Peer is a named subscriber with a session, as it describes itself.
type Peer struct {
	Name, Process string
	Started       time.Time // of its process
	Since         time.Time // when the session began
	Reported      time.Time // when it last reported its checks
	Failing       []string  // checks that fail, sorted
	// Left says that it has closed its session: it is named for Config.KeepLeft, unless it comes
	// back before.
	Left bool
}

// A peerSession is one session of a Peer.
type peerSession struct {
	Peer

	listed bool
	left   time.Time
}

// peers are the named subscribers with sessions. It has as many entries as there are sessions and,
// for Config.KeepLeft, MaxPeers.
type peers struct {
	most int
	keep time.Duration

	mu struct {
		sync.Mutex
		named map[string]*peerSession
	}
}

// enter adds the session of a subscriber, and replaces the one before. A subscriber without a name
// is none: nil.
func (s *peers) enter(r streamer.Request, failing []string) *peerSession {
	if r.Subscriber == "" {
		return nil
	}
	now := time.Now()
	p := &peerSession{Peer: Peer{Name: r.Subscriber, Process: r.Process, Started: r.Started, Since: now, Reported: now, Failing: failing}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.mu.named[p.Name]; before != nil {
		p.listed = before.listed
	}
	if s.mu.named == nil {
		s.mu.named = make(map[string]*peerSession)
	}
	s.mu.named[p.Name] = p
	return p
}

// report replaces the checks that fail.
func (s *peers) report(p *peerSession, failing []string) {
	if p == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Reported = time.Now()
	p.Failing = failing
}

// exit removes a session, unless another one has replaced it. One that its client has closed is
// kept for a while.
func (s *peers) exit(p *peerSession, closed bool) {
	if p == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.named[p.Name] != p:
	case closed && p.listed:
		p.Left = true
		p.left = time.Now()
		p.Failing = nil
	default:
		delete(s.mu.named, p.Name)
	}
}

// list returns the listed subscribers, by name, and the number of others, which are too many. A
// listed subscriber stays listed; of the others the earliest are listed first.
func (s *peers) list() (listed []Peer, unlisted int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.mu.named, func(_ string, p *peerSession) bool { return p.Left && now.Sub(p.left) >= s.keep })
	all := slices.Collect(maps.Values(s.mu.named))
	slices.SortFunc(all, func(a, b *peerSession) int {
		if a.listed != b.listed {
			if a.listed {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	for _, p := range all[:min(len(all), s.most)] {
		p.listed = true
		listed = append(listed, p.Peer)
	}
	slices.SortFunc(listed, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return listed, len(all) - len(listed)
}

// Peers returns the named subscribers with sessions over gRPC, at most Config.MaxPeers and by name,
// and how many more there are. It may be called from any goroutine.
func (s *Server) Peers() (listed []Peer, unlisted int) { return s.peers.list() }

// readChecks returns the checks that fail, sorted.
func readChecks(checks []*streampb.Check) (failing []string, err error) {
	for _, check := range checks {
		switch name := check.GetName(); {
		case name == "":
			return nil, fault.Newf(fault.SessionBadRequest, "a check needs a name")
		case !check.GetOk():
			failing = append(failing, name)
		}
	}
	slices.Sort(failing)
	return slices.Compact(failing), nil
}
