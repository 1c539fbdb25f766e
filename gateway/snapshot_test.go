package gateway_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/snapshot"
	"github.com/mongostream/streamer/streamer"
)

// shelf is a collection that stays as it is.
type shelf int64

func (s shelf) Collections(context.Context, string, string) ([]snapshot.Collection, change.Timestamp, error) {
	return []snapshot.Collection{{Namespace: change.Namespace{DB: "shop", Coll: "orders"}, Documents: int64(s)}}, change.Timestamp{}, nil
}

func (s shelf) Read(_ context.Context, q snapshot.Query) (p snapshot.Page, err error) {
	from, _ := q.From.Int64()
	for id := from; id < int64(s); id++ {
		if len(p.Documents) == q.Documents {
			p.Next = change.Value{Type: change.TypeInt64, Data: binary.LittleEndian.AppendUint64(nil, uint64(id))}
			break
		}
		p.Documents = append(p.Documents, changetest.Event{ID: id, Value: id + 1}.Document())
	}
	p.To = q.After
	return p, nil
}

// saved waits until a checkpoint says that the snapshot is complete.
func (w *world) saved() {
	w.Helper()
	w.until("the checkpoint is saved", func() bool {
		saved, err := w.store.Load(w.Context(), "s")
		return err == nil && len(saved) == 1 && len(saved[0].Snapshots) == 1 && saved[0].Snapshots[0].Done
	})
}

func TestSnapshotIsFlaggedBetweenItsMarks(t *testing.T) {
	w := newWorld(t, options{hub: delivery.Config{Snapshots: shelf(5)}})
	s := w.connect(hello(func(h *streampb.Hello) {
		h.Start, h.Subscriptions = streampb.Start_START_SNAPSHOT, []*streampb.Subscription{{Id: "a"}}
	}))
	mark := func() *streampb.Snapshot {
		return next(s, func(r *streampb.ConnectResponse) *streampb.Snapshot { return r.GetBatch().GetSnapshot() })
	}
	if m := mark(); m.GetState() != streampb.Snapshot_STATE_BEGUN || m.GetSubscription() != "a" || m.GetReason() != "start" || m.GetEstimated() != 5 || m.GetRead() != 0 {
		t.Errorf("%v", m)
	}
	for flagged, others := 0, 0; flagged < 5; {
		for _, e := range s.events(1) {
			if e.GetSnapshot() {
				flagged++
			} else if others++; others > 1 { // the newest change comes again
				t.Errorf("%v", e)
			}
		}
	}
	if m := mark(); m.GetState() != streampb.Snapshot_STATE_DONE || m.GetRead() != 5 || m.GetEstimated() != 5 {
		t.Errorf("%v", m)
	}
	w.write(1, 0)
	if e := s.events(1)[0]; e.GetSnapshot() {
		t.Errorf("%v", e)
	}
	s.ack(s.seq)
	w.saved()

	again := w.connect(hello(func(h *streampb.Hello) { // it has had that of a
		h.Start, h.ProcessId, h.Subscriptions = streampb.Start_START_SNAPSHOT, "p2", []*streampb.Subscription{{Id: "a"}, {Id: "later"}}
	}))
	begun := next(again, func(r *streampb.ConnectResponse) *streampb.Snapshot { return r.GetBatch().GetSnapshot() })
	if begun.GetSubscription() != "later" {
		t.Errorf("%v", begun)
	}
	for _, e := range again.events(5) {
		if !e.GetSnapshot() || strings.Join(e.GetSubscriptions(), " ") != "later" {
			t.Errorf("%v", e)
		}
	}

	nobody := w.open(t.Context(), hello(func(h *streampb.Hello) {
		h.Subscriber, h.Subscriptions = "", []*streampb.Subscription{{Id: "a", OnLoss: streampb.OnLoss_ON_LOSS_SNAPSHOT}}
	}))
	if _, codes := nobody.answers(1); codes[0] != string(fault.SessionBadRequest) {
		t.Errorf("%q", codes)
	}
}

// An event stream says in its ids which documents a client has had: one that broke within them
// sends them again, one after them does not.
func TestEventStreamResumesWithinASnapshot(t *testing.T) {
	w := newWorld(t, options{hub: delivery.Config{Snapshots: shelf(5)}})
	const query = "?subscriber=s&start=snapshot"
	read := func(last string) (documents []string, end string) {
		r := w.get(query, last)
		for {
			m, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case m.Event == "snapshot" && strings.Contains(string(m.Data), `"state":"done"`):
				return documents, m.ID
			case m.Event == "" && strings.Contains(string(m.Data), `"operationType":"snapshot"`):
				documents = append(documents, m.ID)
			}
		}
	}
	ids, end := read("")
	if len(ids) != 5 {
		t.Fatalf("%q", ids)
	}
	if again, _ := read(ids[2]); len(again) != 5 { // the page again
		t.Errorf("%q after a break within", again)
	}
	w.saved()
	r := w.get(query, end)
	w.write(1, 0)
	if m, err := r.Next(); err != nil || m.Event != "" || strings.Contains(string(m.Data), `"operationType":"snapshot"`) {
		t.Errorf("%s %s, %v", m.Event, m.Data, err)
	}
}

// An event stream that was rewound gets the documents that it has not received, also if the history
// of its checkpoint, which says where it was moved to, cannot be read.
func TestRewoundEventStreamGetsItsDocuments(t *testing.T) {
	for name, store := range map[string]func(streamer.Checkpoints) streamer.Checkpoints{
		"with its history": nil,
		"without":          func(s streamer.Checkpoints) streamer.Checkpoints { return forgetful{s} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{hub: delivery.Config{Snapshots: shelf(5)}, store: store})
			documents := func(last string, n int) (id string) {
				r := w.get("?subscriber=s&start=snapshot", last)
				for n > 0 {
					m, err := r.Next()
					if err != nil {
						t.Fatal(err)
					}
					if m.Event == "" && strings.Contains(string(m.Data), `"operationType":"snapshot"`) {
						id, n = m.ID, n-1
					}
				}
				return id
			}
			_, start := w.source.Reach()
			had := documents("", 2) // the others are lost with the connection
			w.saved()
			if _, err := w.store.Rewind(t.Context(), checkpoint.Key{Subscriber: "s"}, change.At(start), "operator", "a test"); err != nil {
				t.Fatal(err)
			}
			documents(had, 3)
		})
	}
}

// A forgetful store has no histories.
type forgetful struct{ streamer.Checkpoints }

func (forgetful) History(context.Context, checkpoint.Key) ([]checkpoint.Checkpoint, error) {
	return nil, errors.New("the store does not answer")
}

// A client whose connection breaks after every few documents gets all of them: each time it goes on
// where the id says that it is.
func TestEventStreamGetsOnHoweverOftenItBreaks(t *testing.T) {
	w := newWorld(t, options{hub: delivery.Config{Snapshots: shelf(60), SnapshotPage: 7}})
	last := ""
	for connection := 0; ; connection++ {
		if connection > 20 {
			t.Fatal("it does not get on")
		}
		r := w.get("?subscriber=s&start=snapshot", last)
		for range 10 {
			m, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if last = m.ID; m.Event == "snapshot" && strings.Contains(string(m.Data), `"state":"done"`) {
				return
			}
		}
	}
}
