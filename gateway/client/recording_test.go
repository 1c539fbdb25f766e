package client_test

import (
	"bufio"
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gateway/client"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/lane"
)

// A recording is a log of what a sharded MongoDB sent, from which entries come one by one.
type recording struct {
	events    [][]byte
	positions []change.Position

	mu      sync.Mutex
	there   int // entries
	changed chan struct{}
}

// newRecording reads the events of a recording: updates of many documents, of which some on different shards share everything of their
// positions but the rest of the token.
func newRecording(t *testing.T) *recording {
	t.Helper()
	file, err := os.Open("testdata/equal-heads.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	r := &recording{changed: make(chan struct{})}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var raw bson.Raw
		if err := bson.UnmarshalExtJSON(lines.Bytes(), true, &raw); err != nil {
			t.Fatal(err)
		}
		e, err := change.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		r.events, r.positions = append(r.events, raw), append(r.positions, e.Position())
	}
	return r
}

// release lets so many entries be there.
func (r *recording) release(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.there = n
	close(r.changed)
	r.changed = make(chan struct{})
}

// Reach returns the times of the first and the last entry.
func (r *recording) Reach() (first, last change.Timestamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first = r.positions[0].Time.Prev()
	if r.there == 0 {
		return first, first
	}
	return first, r.positions[r.there-1].Time
}

// Open implements lane.Source.
func (r *recording) Open(_ context.Context, from change.Position) (lane.Stream, error) {
	s := &playback{recording: r, base: from}
	r.mu.Lock()
	defer r.mu.Unlock()
	if from.IsZero() {
		s.base, s.next = change.At(r.positions[0].Time.Prev()), r.there
		if r.there > 0 {
			s.base = r.positions[r.there-1]
		}
		return s, nil
	}
	for s.next < r.there && !r.positions[s.next].After(from) {
		s.next++
	}
	return s, nil
}

// A playback is a stream of a recording: every entry is a reply of its own.
type playback struct {
	*recording

	base change.Position
	next int
}

func (s *playback) Base() change.Position { return s.base }
func (s *playback) Close()                {}

func (s *playback) Next(ctx context.Context) (lane.Reply, error) {
	for {
		s.mu.Lock()
		there, changed := s.there, s.changed
		s.mu.Unlock()
		if s.next < there {
			i := s.next
			s.next++
			return lane.Reply{Events: [][]byte{slices.Clone(s.events[i])}, End: s.positions[i].Clone(), Size: len(s.events[i]), At: time.Now()}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return lane.Reply{}, context.Cause(ctx)
		}
	}
}

// Two events of one partition with equal heads come once each: in two batches of one session, and in two sessions, by position alone.
func TestRecordedEventsOfEqualHeadsComeOnce(t *testing.T) {
	for name, breaks := range map[string]bool{"two batches": false, "a reconnect": true} {
		t.Run(name, func(t *testing.T) {
			r, j := newRecording(t), newJournal()
			w := &town{T: t, log: r, partitions: 1, changed: make(chan struct{})}
			w.populate(1)
			var got []string
			cfg := allConfig(j, w)
			cfg.Start, cfg.Time = client.StartTime, r.positions[0].Time.Time()
			p := start(t, cfg, func(_ context.Context, c client.Change) error {
				j.mu.Lock()
				got = append(got, c.ID())
				j.mu.Unlock()
				j.signal()
				return nil
			})
			told(t, j, anyOf[notice.Connected])
			equal := 0
			for i := range r.events {
				r.release(i + 1)
				j.wait(t, "the next event", func() bool { return len(got) > i })
				if i > 0 && r.positions[i].Head() == r.positions[i-1].Head() {
					equal++
				}
				if breaks {
					w.nodes[0].stop()
					w.nodes[0].begin()
				}
			}
			p.end()
			ids := slices.Clone(got)
			slices.Sort(ids)
			if s := p.Stats(); len(got) != len(r.events) || len(slices.Compact(ids)) != len(got) || s.Holes > 0 || s.Losses > 0 || breaks != (s.Sessions > 1) {
				t.Errorf("%d changes of %d: %q, %+v", len(got), len(r.events), got, s)
			}
			if equal < 5 {
				t.Errorf("%d events share a head with the one before", equal)
			}
		})
	}
}
