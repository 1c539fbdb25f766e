package fanout

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/wire"
	logs "github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/match"
)

// Config configures a Hub.
type Config struct {
	// Partitions is N. Required.
	Partitions int
	// JSON appends a BSON document as relaxed Extended JSON. Required.
	JSON func(b, doc []byte) ([]byte, error)
	// Epoch returns the epoch of this node's term of a partition, zero where it has none. Defaults to none.
	Epoch func(change.Partition) change.Epoch
	// Namespaces are those that the log's streams watch; they go into what subscribers are told of a loss.
	Namespaces []string
	// CreditEvents and CreditBytes bound what a session has queued or sent and not acknowledged. Default to 65536 and 16 MiB. What one
	// reply of MongoDB has for a session may go beyond.
	CreditEvents, CreditBytes int
	// Overlap is how long Settle goes on serving sessions that have been told to go elsewhere. Zero, the default, where there is no elsewhere.
	Overlap time.Duration
	// Hold is for how long, from Run on, marks stay where they are, unless all gateways that are expected have come to the live path.
	Hold time.Duration
	// Bookmark is how often sessions on the live path are told how far they are where nothing happens. Defaults to 15 s.
	Bookmark time.Duration
	// Trusted reports whether the node may hand anything to anybody, by a clock that counts suspension. Defaults to always.
	Trusted func() bool
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

// A Hub reads the log for the sessions on the live path.
type Hub struct {
	cfg         Config
	log         *logs.Log
	logger      *slog.Logger
	metrics     metrics
	partitioner change.Partitioner
	index       *match.Index // the subscriptions of all sessions

	reading sync.WaitGroup // the loops of the sessions
	eased   chan struct{}  // holds one signal: a stop may have less to wait for

	mu struct {
		sync.Mutex
		cursor        *logs.Cursor    // nil before Run
		passed        change.Position // the end of the last reply
		sessions      map[*Session]struct{}
		subscriptions map[match.ID]*Subscription
		last          match.ID
		draining      bool                // no session is opened
		settling      bool                // none joins the live path: a stop waits for what is due
		closed        bool                // nothing is delivered; what the sessions have not acknowledged still counts
		moved         bool                // sessions have come, gone, attached or detached since the next two were derived
		everywhere    bool                // some session delivers all partitions
		delivered     []bool              // by partition: some session delivers it
		expected      map[string]struct{} // gateways that have yet to come to the live path
		holdUntil     time.Time
	}

	// Of the loop alone.
	writer  wire.Writer
	matched []match.ID
	getting []*Session // the sessions that get the event, with what matches in Session.matched
	touched map[*Session][]change.Partition
}

// New makes a Hub over a log.
func New(cfg Config, log *logs.Log) *Hub {
	cfg.CreditEvents = cmp.Or(cfg.CreditEvents, 65536)
	cfg.CreditBytes = cmp.Or(cfg.CreditBytes, 16<<20)
	cfg.Bookmark = cmp.Or(cfg.Bookmark, 15*time.Second)
	if cfg.Epoch == nil {
		cfg.Epoch = func(change.Partition) change.Epoch { return change.Epoch{} }
	}
	h := &Hub{
		cfg: cfg, log: log, logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), partitioner: change.NewPartitioner(cfg.Partitions),
		index: &match.Index{}, eased: make(chan struct{}, 1), writer: wire.Writer{JSON: cfg.JSON}, touched: make(map[*Session][]change.Partition),
	}
	h.mu.delivered = make([]bool, cfg.Partitions)
	h.mu.expected = make(map[string]struct{})
	h.mu.sessions = make(map[*Session]struct{})
	h.mu.subscriptions = make(map[match.ID]*Subscription)
	h.metrics = newMetrics(cfg.Registerer, h)
	return h
}

// Run reads for the sessions until the context ends; then it closes them.
func (h *Hub) Run(ctx context.Context) error {
	defer h.reading.Wait()
	defer h.closeAll()
	h.locked(func() {
		h.mu.cursor = h.log.All(logs.Start{})
		h.mu.holdUntil = time.Now().Add(h.cfg.Hold)
	})
	defer func() { h.mu.cursor.Close() }()
	tick := time.NewTicker(h.cfg.Bookmark)
	defer tick.Stop()
	next := time.Now().Add(h.cfg.Bookmark)
	for {
		wait, cancel := context.WithDeadline(ctx, next)
		batch, err := h.mu.cursor.Next(wait)
		cancel()
		switch {
		case err == nil:
			h.pass(batch)
		case ctx.Err() != nil, errors.Is(err, context.Canceled):
			return nil // a planned stop, of the hub or of the log
		case errors.Is(err, context.DeadlineExceeded):
		case errors.Is(err, logs.ErrPositionLost):
			h.lost()
		default:
			return err
		}
		if now := time.Now(); !now.Before(next) {
			next = now.Add(h.cfg.Bookmark)
			h.bookmark()
		}
	}
}

func (h *Hub) locked(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// pass takes one reply to the sessions on the live path.
func (h *Hub) pass(batch *logs.Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return
	}
	h.derive()
	for i := range batch.Len() {
		h.event(batch.Event(i))
	}
	end := batch.End().Clone() // the reply is let go of
	for s, partitions := range h.touched {
		s.mu.Lock()
		s.mu.trails.Reached(partitions, end)
		s.signal()
		stays := s.hasCredit()
		if !stays {
			s.mu.position = end
		}
		s.mu.Unlock()
		if !stays {
			h.metrics.left.Inc()
			s.live = false
			s.stir()
		}
	}
	clear(h.touched)
	h.mu.passed = end
}

// derive finds out which partitions any session delivers, from the sessions themselves: what nobody counts cannot be miscounted. Under the
// mutex.
func (h *Hub) derive() {
	if !h.mu.moved {
		return
	}
	h.mu.moved, h.mu.everywhere = false, false
	clear(h.mu.delivered)
	for s := range h.mu.sessions {
		if h.mu.everywhere = !s.cfg.Owned; h.mu.everywhere {
			return
		}
		s.mu.Lock()
		for p := range s.mu.trails.Delivered() {
			h.mu.delivered[p] = true
		}
		s.mu.Unlock()
	}
}

// at returns how far the hub has read. The cursor counts a reply as read only when it is asked for the next one, but knows how far the
// log is where nothing happens. Under the mutex.
func (h *Hub) at() change.Position {
	if h.mu.closed || h.mu.cursor == nil {
		return h.mu.passed
	}
	return change.Later(h.mu.cursor.Position(), h.mu.passed)
}

// event matches one event and queues it for the sessions on the live path.
func (h *Hub) event(e *change.Event) {
	switch e.Op() {
	case change.OpSkipped:
		h.aside(e)
		return
	case change.OpRename:
		h.aside(e)
	default:
	}
	if !h.mu.everywhere {
		if p, keyed := h.partitioner.Of(e); keyed && !h.mu.delivered[p] {
			return
		}
	}
	h.matched = h.index.Match(e, h.matched[:0], h.complain)
	if len(h.matched) == 0 {
		return
	}
	h.writer.Next(e)
	for _, id := range h.matched {
		sub := h.mu.subscriptions[id]
		if sub == nil || !sub.session.live || !e.Position().After(sub.session.from) {
			continue
		}
		if len(sub.session.matched) == 0 {
			h.getting = append(h.getting, sub.session)
		}
		sub.session.matched = append(sub.session.matched, sub)
	}
	for _, s := range h.getting {
		s.mu.Lock()
		h.touched[s] = h.queue(s, e, s.matched, &h.writer, h.touched[s])
		s.mu.Unlock()
		clear(s.matched)
		s.matched = s.matched[:0]
	}
	clear(h.getting)
	h.getting = h.getting[:0]
}

// queue puts an event into a session's queue, once for each form that its subscriptions ask for, and notes the partitions. Under the
// session's mutex.
func (h *Hub) queue(s *Session, e *change.Event, subscriptions []*Subscription, w *wire.Writer, touched []change.Partition) []change.Partition {
	first, last := change.Partition(0), change.Partition(h.cfg.Partitions-1)
	if p, keyed := h.partitioner.Of(e); keyed {
		first, last = p, p
	}
	for p := first; p <= last; p++ {
		if t := s.mu.trails.Of(p); t.Away() || t.Seen(e) {
			continue
		}
		again := false
		for rest := subscriptions; len(rest) > 0; {
			var others []*Subscription
			shape, ids := rest[0].Shape, rest[0].ids
			for _, sub := range rest[1:] {
				if sub.Shape.Equal(shape) {
					ids = append(ids[:len(ids):len(ids)], sub.ID)
				} else {
					others = append(others, sub)
				}
			}
			payload, err := w.Payload(shape)
			if err != nil {
				h.failed(rest[0], fault.New(fault.SessionEncoding, err))
			} else {
				position := e.Position()
				s.mu.trails.Add(p, position, wire.Event{
					Head: wire.HeadOf(position), Hash: position.Hash(), Payload: payload, Format: shape.Format, Subscriptions: ids,
				}, again)
				again = true
			}
			rest = others
		}
		touched = append(touched, p)
	}
	return touched
}

// complain tells a session that its filter failed on an event: neither a yes nor a no. Under the hub's mutex.
func (h *Hub) complain(id match.ID, err error) {
	if sub := h.mu.subscriptions[id]; sub != nil {
		h.failed(sub, err)
	}
}

// failed has a session told of what went wrong with one of its subscriptions. It may be called under any mutex.
func (h *Hub) failed(sub *Subscription, err error) {
	h.metrics.failed.Inc()
	sub.failed.Add(err)
}

// lost takes every session off the live path, because the log has wrapped past its end: each finds out what it has lost. Until the hub
// knows at which end of the log it goes on, none joins it.
func (h *Hub) lost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.at()
	for s := range h.mu.sessions {
		if s.live {
			h.park(s, at)
		}
	}
	h.mu.cursor.Close()
	h.mu.cursor, h.mu.passed = h.log.All(logs.Start{}), change.Position{}
}

// park takes a session off the live path, where it stands at the position. Under the mutex.
func (h *Hub) park(s *Session, at change.Position) {
	s.live = false
	s.mu.Lock()
	s.mu.position = change.Later(at, s.from).Clone()
	s.mu.Unlock()
	s.stir()
}

// Rewound tells every session that an operator has moved a partition back, and moves it: what follows is delivered again.
func (h *Hub) Rewound(p change.Partition, to change.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := delivery.RewoundByOperator(h.cfg.Namespaces)
	for s := range h.mu.sessions {
		s.mu.Lock()
		if s.mu.trails.Rewind(p, n, to) {
			s.readAgain(to)
			s.signal()
		}
		s.mu.Unlock()
		s.stir()
	}
}

// bookmark tells the sessions on the live path how far they are.
func (h *Hub) bookmark() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return
	}
	at := h.at().Clone()
	for s := range h.mu.sessions {
		if s.live && !s.from.After(at) {
			s.mu.Lock()
			s.mu.trails.Bookmark(at)
			s.signal()
			s.mu.Unlock()
		}
	}
}

// join puts a session that has read up to the position onto the live path, if the hub is no further. Also where it is not, the session has
// the position from now on, unless it is not current: it has been moved meanwhile.
func (h *Hub) join(s *Session, at change.Position, rewinds int) (joined, current bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.rewinds != rewinds {
		return false, false
	}
	if h.mu.cursor == nil || h.mu.settling {
		return false, true
	}
	s.mu.position = at
	hub := h.at()
	if hub.IsZero() || hub.After(at) {
		return false, true
	}
	s.live, s.from = true, at.Clone()
	if !s.cfg.Owned || s.mu.trails.Attached() {
		delete(h.mu.expected, s.cfg.Gateway)
	}
	h.metrics.joined.Inc()
	return true, true
}

// leave forgets a session, unless it is the hub that closes it.
func (h *Hub) leave(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.ease()
	if h.mu.closed {
		return // it goes on to count
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		s.mu.position = change.Later(h.at(), s.from).Clone() // where it stands is asked for afterwards, too
	}
	s.live = false
	delete(h.mu.sessions, s)
	h.mu.moved = true
	for _, sub := range s.mu.subscriptions {
		h.index.Remove(sub.key)
		delete(h.mu.subscriptions, sub.key)
	}
}
