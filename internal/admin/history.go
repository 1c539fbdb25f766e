package admin

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/streamer"
)

// A History keeps a node's measurements of the last hour: every HistoryEvery a sample of rate, lag
// and sessions of the nodes, of the subscribers with a session here, and of where changes take
// their time. It is in memory only, and takes at most MaxHistoryBytes, without names.
type History struct {
	mu struct {
		sync.Mutex
		at          time.Time // of the newest sample
		began       time.Time // of the first
		headRoom    *series
		stages      map[string]*stageSeries
		nodes       map[string]*nodeSeries
		subscribers map[string]*subscriberSeries
	}
}

const (
	// HistoryEvery is the time between two samples.
	HistoryEvery = 15 * time.Second
	// historySamples are those of an hour.
	historySamples = int(time.Hour / HistoryEvery)
	// historyNodes bounds the nodes that are kept, and historySubscribers the subscribers. From a
	// sample it takes those with the greatest lag, half as many as it keeps.
	historyNodes, historySubscribers = 64, 128
	// historyStages are the stages that a node measures.
	historyStages = 4
	// MaxHistoryBytes bounds the samples of all series.
	MaxHistoryBytes = (1 + historyStages + historyNodes*nodeValues + historySubscribers*subscriberValues) * historySamples * 4
	// How many series a node has, and a subscriber.
	nodeValues, subscriberValues = 3, 4
)

// A series is the samples of a number, the oldest first from next on; NaN where it was unknown.
type series struct {
	values [historySamples]float32
	next   int
}

func newSeries() *series {
	s := &series{}
	for i := range s.values {
		s.values[i] = float32(math.NaN())
	}
	return s
}

// add appends a sample, which takes the place of the oldest one.
func (s *series) add(v float64) {
	s.values[s.next] = float32(v)
	s.next = (s.next + 1) % historySamples
}

// empty reports whether nothing was known during the hour.
func (s *series) empty() bool {
	return !slices.ContainsFunc(s.values[:], isKnown)
}

func isKnown(v float32) bool { return !math.IsNaN(float64(v)) }

// last returns the newest n samples, the oldest first, to a thousandth; nil where one was unknown.
func (s *series) last(n int) []*float64 { return s.lastTo(n, 1000) }

// lastTo returns the same, to one part in so many.
func (s *series) lastTo(n int, parts float64) []*float64 {
	all := make([]*float64, n)
	for i := range n {
		v := float64(s.values[(s.next+historySamples-n+i)%historySamples])
		if !math.IsNaN(v) {
			v = rounded(v, parts)
			all[i] = &v
		}
	}
	return all
}

type nodeSeries struct{ rate, lag, sessions *series }

func (n *nodeSeries) all() []*series { return []*series{n.rate, n.lag, n.sessions} }

type subscriberSeries struct {
	by                                  string // its identity
	lag, headRoom, unacknowledged, rate *series
	acknowledged                        uint64 // at the last sample
}

func (s *subscriberSeries) all() []*series {
	return []*series{s.lag, s.headRoom, s.unacknowledged, s.rate}
}

// A Stage is a part of the way of changes, and how long it has taken in all since the node began.
type Stage struct {
	Name    string
	Seconds float64
	Count   uint64 // of measurements
}

type stageSeries struct {
	Stage // at the last sample

	mean *series
}

// NewHistory returns an empty History.
func NewHistory() *History {
	h := &History{}
	h.mu.headRoom = newSeries()
	h.mu.stages = make(map[string]*stageSeries)
	h.mu.nodes = make(map[string]*nodeSeries)
	h.mu.subscribers = make(map[string]*subscriberSeries)
	return h
}

// Note takes a sample. If samples are missing before it, because the process was frozen, they are
// unknown.
func (h *History) Note(now time.Time, members []cluster.Member, subscribers []streamer.SubscriberStatus, stages []Stage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.began.IsZero() {
		h.mu.began = now
	} else {
		missed := intervals(now.Sub(h.mu.at)) - 1
		for range min(missed, historySamples) {
			h.skip()
		}
	}
	h.mu.at = now
	h.noteNodes(members)
	h.noteSubscribers(subscribers)
	h.noteStages(stages)
	h.forget()
}

// intervals returns how many intervals a time is, rounded.
func intervals(d time.Duration) int { return int((d + HistoryEvery/2) / HistoryEvery) }

// skip adds an unknown sample to every series. The caller holds the mutex, as of the following.
func (h *History) skip() {
	h.mu.headRoom.add(math.NaN())
	for _, s := range h.mu.stages {
		s.mean.add(math.NaN())
	}
	for _, n := range h.mu.nodes {
		for _, s := range n.all() {
			s.add(math.NaN())
		}
	}
	for _, n := range h.mu.subscribers {
		for _, s := range n.all() {
			s.add(math.NaN())
		}
	}
}

func (h *History) noteNodes(members []cluster.Member) {
	there := make(map[string]cluster.Member, len(members))
	for _, m := range members {
		if _, known := h.mu.nodes[m.Node]; m.Garbled != nil || !known && len(h.mu.nodes) >= historyNodes {
			continue
		}
		there[m.Node] = m
		if h.mu.nodes[m.Node] == nil {
			h.mu.nodes[m.Node] = &nodeSeries{newSeries(), newSeries(), newSeries()}
		}
	}
	for name, n := range h.mu.nodes {
		m, is := there[name]
		if !is {
			for _, s := range n.all() {
				s.add(math.NaN())
			}
			continue
		}
		n.rate.add(m.Load.Rate)
		n.lag.add(orNaN(m.Load.Lag))
		sessions := m.Unlisted
		for _, g := range m.Gateways {
			if !g.Left {
				sessions++
			}
		}
		n.sessions.add(float64(sessions))
	}
}

func (h *History) noteSubscribers(subscribers []streamer.SubscriberStatus) {
	least := math.NaN()
	for _, s := range subscribers {
		if s.HeadRoom != nil && (math.IsNaN(least) || s.HeadRoom.Seconds() < least) {
			least = s.HeadRoom.Seconds()
		}
	}
	h.mu.headRoom.add(least)
	worst := slices.Clone(subscribers)
	slices.SortStableFunc(worst, func(a, b streamer.SubscriberStatus) int {
		switch { // clients, whose number is unbounded, displace no shared subscriber
		case a.Shared && !b.Shared:
			return -1
		case b.Shared && !a.Shared:
			return 1
		}
		return cmp.Compare(seconds(b.Lag), seconds(a.Lag)) // NaN comes last
	})
	there := make(map[string]streamer.SubscriberStatus)
	for _, s := range worst[:min(len(worst), historySubscribers/2)] {
		there[s.Name] = s
		if known := h.mu.subscribers[s.Name]; known == nil || known.by != s.By {
			h.mu.subscribers[s.Name] = &subscriberSeries{by: s.By, lag: newSeries(), headRoom: newSeries(), unacknowledged: newSeries(), rate: newSeries(), acknowledged: s.Acknowledged}
		}
	}
	for name, k := range h.mu.subscribers {
		s, is := there[name]
		if !is {
			for _, values := range k.all() {
				values.add(math.NaN())
			}
			continue
		}
		k.lag.add(seconds(s.Lag))
		k.headRoom.add(seconds(s.HeadRoom))
		k.unacknowledged.add(float64(s.Unacknowledged))
		grown := s.Acknowledged - min(k.acknowledged, s.Acknowledged)
		if s.Acknowledged < k.acknowledged { // another session
			grown = s.Acknowledged
		}
		k.rate.add(float64(grown) / HistoryEvery.Seconds())
		k.acknowledged = s.Acknowledged
	}
}

// noteStages adds how long each stage took on average since the last sample; unknown if it was not
// measured.
func (h *History) noteStages(stages []Stage) {
	for _, now := range stages {
		s := h.mu.stages[now.Name]
		if s == nil {
			s = &stageSeries{mean: newSeries()}
			h.mu.stages[now.Name] = s
		}
		s.mean.add((now.Seconds - s.Seconds) / float64(now.Count-s.Count)) // NaN for none
		s.Stage = now
	}
}

// Stages returns the newest sample of each stage, in seconds, for those where it is known.
func (h *History) Stages() map[string]float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	newest := make(map[string]float64, len(h.mu.stages))
	for name, s := range h.mu.stages {
		if mean := s.mean.lastTo(1, stageParts)[0]; mean != nil {
			newest[name] = *mean
		}
	}
	return newest
}

// stageParts are the parts of a second to which the means of stages are shown.
const stageParts = 1e6

// forget drops series without a known sample, and those beyond the bound that have been absent
// longest.
func (h *History) forget() {
	for name, n := range h.mu.nodes {
		if n.rate.empty() {
			delete(h.mu.nodes, name)
		}
	}
	away := func(s *subscriberSeries) (samples int) {
		for i := range historySamples {
			if v := s.unacknowledged.values[(s.unacknowledged.next+2*historySamples-1-i)%historySamples]; isKnown(v) {
				return i
			}
		}
		return historySamples
	}
	var names []string
	for name := range h.mu.subscribers {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(away(h.mu.subscribers[a]), away(h.mu.subscribers[b])), cmp.Compare(a, b))
	})
	for i, name := range names {
		if i >= historySubscribers || away(h.mu.subscribers[name]) == historySamples {
			delete(h.mu.subscribers, name)
		}
	}
}

// seconds returns a duration in seconds, NaN for one that is unknown.
func seconds(d *time.Duration) float64 {
	if d == nil {
		return math.NaN()
	}
	return d.Seconds()
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// A HistoryList is the public form of a History: numbers are the samples, oldest first, nil if
// unknown. The last one is of the time At, and Every is their interval in seconds.
type HistoryList struct {
	Node  string     `json:"node"` // whose memory it is
	At    *time.Time `json:"at"`   // nil before the first sample
	Every float64    `json:"every_seconds"`
	// HeadRoom is the least of the subscribers with a session at the node.
	HeadRoom []*float64 `json:"head_room_seconds,omitempty"`
	// Stages are how long changes took in the node's stages, on average, in seconds.
	Stages     map[string][]*float64  `json:"stage_seconds,omitempty"`
	Nodes      map[string]NodeHistory `json:"nodes,omitempty"`
	Subscriber *SubscriberHistory     `json:"subscriber,omitempty"`
}

// A NodeHistory is the samples of a node by its heartbeats.
type NodeHistory struct {
	Rate     []*float64 `json:"rate"` // events a second
	Lag      []*float64 `json:"lag_seconds"`
	Sessions []*float64 `json:"sessions"` // of gateways
}

// A SubscriberHistory is the samples of a subscriber while it had a session at the node.
type SubscriberHistory struct {
	Lag            []*float64 `json:"lag_seconds"`
	HeadRoom       []*float64 `json:"head_room_seconds"`
	Unacknowledged []*float64 `json:"unacknowledged_events"`
	Rate           []*float64 `json:"rate"` // acknowledged events a second
}

// list returns the part that an identity may see: if it may not read everything, its own
// subscribers.
func (h *History) list(i *access.Identity, node, subscriber string) HistoryList {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := HistoryList{Node: node, Every: HistoryEvery.Seconds()}
	if h.mu.at.IsZero() {
		return list
	}
	at := h.mu.at
	list.At = &at
	n := min(historySamples, 1+intervals(at.Sub(h.mu.began)))
	if i.Operates() {
		list.HeadRoom = h.mu.headRoom.last(n)
		list.Stages = make(map[string][]*float64, len(h.mu.stages))
		for name, s := range h.mu.stages {
			list.Stages[name] = s.mean.lastTo(n, stageParts)
		}
		list.Nodes = make(map[string]NodeHistory, len(h.mu.nodes))
		for name, s := range h.mu.nodes {
			list.Nodes[name] = NodeHistory{Rate: s.rate.last(n), Lag: s.lag.last(n), Sessions: s.sessions.last(n)}
		}
	}
	owns := func(s *subscriberSeries) bool { return i != nil && s.by != "" && s.by == i.Owner() }
	if s := h.mu.subscribers[subscriber]; s != nil && (i.Operates() || owns(s)) {
		list.Subscriber = &SubscriberHistory{Lag: s.lag.last(n), HeadRoom: s.headRoom.last(n), Unacknowledged: s.unacknowledged.last(n), Rate: s.rate.last(n)}
	}
	return list
}

// ServeHistory answers GET requests with a HistoryList as JSON; the parameter subscriber names one
// whose samples are wanted, too.
func ServeHistory(node string, h *History) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, h.list(access.From(r.Context()), node, r.URL.Query().Get("subscriber")))
	})
}
