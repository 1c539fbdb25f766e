package snapshot

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/internal/wake"
)

// Sessions are those whose subscriptions a Scanner reads for: with [Stand], its port. The methods
// are called in the loop of the Scanner and do not block.
type Sessions[T any] interface {
	// Ready reports whether a reader may get a page now: its session is where the log has been
	// considered, and has room.
	Ready(*Reader[T]) bool
	// Wait keeps a reader that is not ready. It is offered again when that may have changed.
	Wait(*Reader[T])
	// Stand pauses the sessions of readers at a time for pages that are read there.
	Stand([]*Reader[T], change.Timestamp) Stand
}

// A Stand is readers that wait at one time for pages.
type Stand interface {
	// Stays returns how many readers may wait for another page, and have room for one with so many
	// documents and bytes before it; 0 unless all of them do. It is called in the loop.
	Stays(documents, bytes int) (readers int)
	// Writer returns a function that writes pages as the readers want them, for Give. It expects so
	// many bytes, and returns how many there are. Both are called outside the loop, and block.
	Writer() func(p *PageRead, expected int) (written int)
	// Give hands the written page over; nil: no page comes, and the readers continue. It is called
	// in the loop.
	Give(*Given)
}

// A Given describes a page that was written.
type Given struct {
	// Out says of each document that was read whether it comes with a later page, because changes
	// during the read hide its state; nil: none does.
	Out []bool
	// Passes says that the page is complete, and that the readers have moved on. Read are its
	// documents.
	Passes bool
	Read   int
	// More says that another page comes at the same time.
	More bool
}

// Config configures a Scanner.
type Config[T any] struct {
	Source   Source
	Sessions Sessions[T]
	// Do calls a function in the loop, between two replies of the log, and waits for it. It returns
	// false if the loop or the context has ended.
	Do func(context.Context, func()) bool
	// Documents bounds the documents of a page for so many readers.
	Documents func(readers int) int
	Turns     *Turns
	Reads     *Reads
	Logger    *slog.Logger
}

// A Scanner reads collections for readers: one scan serves all that are at one place. It belongs to
// the loop that considers the log, which alone calls its methods. Its goroutines read pages, and
// have the loop do the rest.
type Scanner[T any] struct {
	cfg     Config[T]
	start   func(func(context.Context))
	running sync.WaitGroup

	place   Place
	scans   []*scanning[T]
	parked  map[change.Namespace]parked[T] // that wait for a scan to come to their place
	tickets uint64                         // of these
}

// NewScanner returns a Scanner whose goroutines end with the context.
func NewScanner[T any](ctx context.Context, cfg Config[T]) *Scanner[T] {
	s := &Scanner[T]{cfg: cfg, parked: make(map[change.Namespace]parked[T])}
	s.start = func(f func(context.Context)) { s.running.Go(func() { f(ctx) }) }
	return s
}

// Join waits until the goroutines have ended.
func (s *Scanner[T]) Join() { s.running.Wait() }

// Note considers an event of the log.
func (s *Scanner[T]) Note(e *change.Event) {
	for _, c := range s.scans {
		c.note(e)
	}
}

// Spoil says that events may be missing.
func (s *Scanner[T]) Spoil() {
	for _, c := range s.scans {
		c.spoil()
	}
}

// Place says how far the log has been considered, and hands over the pages whose time that is.
func (s *Scanner[T]) Place(p Place) {
	s.place = p
	for _, c := range s.scans {
		s.deliver(c)
		wake.Notify(c.moved)
	}
}

// Wake says that readers may be ready that were not.
func (s *Scanner[T]) Wake() {
	for _, c := range s.scans {
		wake.Notify(c.woken)
	}
}

// Offer finds a scan for a reader, begins one, or makes it wait.
func (s *Scanner[T]) Offer(r *Reader[T]) {
	for _, c := range s.scans {
		if c.namespace != r.Left.Namespace || r.IsOver() {
			continue
		}
		joins := r.Left.IsFresh() || r.Left.From.Equal(c.At()) && s.cfg.Sessions.Ready(r) && c.Fits(r)
		if joins {
			c.invite(r)
			wake.Notify(c.woken)
			return
		}
	}
	s.begin(r)
}

// Forget forgets the readers that have left.
func (s *Scanner[T]) Forget() {
	for ns, of := range s.parked {
		for key := range of {
			s.unpark(ns, key, (*Reader[T]).IsOver)
		}
	}
}

// String describes the scans.
func (s *Scanner[T]) String() string {
	var b strings.Builder
	for _, c := range s.scans {
		fmt.Fprintf(&b, "[%s readers %d page %t again %d stands %t spoiled %t] ", c.namespace, len(c.Readers()), c.page != nil, len(c.again), c.stand != nil, c.touched.Spoiled())
	}
	waiting := 0
	for _, of := range s.parked {
		for _, readers := range of {
			waiting += len(readers)
		}
	}
	fmt.Fprintf(&b, "parked %d", waiting)
	return b.String()
}

// begin begins a scan for a reader, unless it has to wait.
func (s *Scanner[T]) begin(r *Reader[T]) {
	switch {
	case r.IsOver():
		return
	case s.isServed(r):
		s.park(r)
		return
	case !s.cfg.Sessions.Ready(r):
		s.cfg.Sessions.Wait(r)
		return
	}
	c := newScanning(r)
	s.scans = append(s.scans, c)
	s.start(func(ctx context.Context) { s.run(ctx, c) })
}
