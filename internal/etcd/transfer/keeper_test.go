package transfer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/handoff/ledger"
	"github.com/mongostream/streamer/internal/etcd"
)

func TestSwitchMovesOwnerAndMarkTogether(t *testing.T) {
	c := newPlace(t)
	if err := c.save(c.a, c.epoch, 3); err != nil {
		t.Fatal(err)
	}
	s := c.prepared()
	r, err := c.a.keeper.Switch(t.Context(), s.Record, s.Answer, c.mark(c.epoch, 7))
	if err != nil {
		t.Fatal(err)
	}
	s = c.wantOwner(c.b, 7)
	if s.Record != r || r.Phase != ledger.Switched || int64(s.Owner.Epoch.Revision) != r.Revision {
		t.Errorf("the record is %+v, returned was %+v", s.Record, r)
	}
	if revision := c.kv("mark/%05d", p).Revision; revision != r.Revision {
		t.Errorf("the mark was put at revision %d, the owner at %d", revision, r.Revision)
	}
	history, err := c.b.marks.History(t.Context(), p)
	if err != nil || len(history) == 0 || history[0].Reason != checkpoint.ReasonHandoff {
		t.Errorf("history: %+v, %v", history, err)
	}
	if err := c.save(c.a, c.epoch, 9); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("the donor saves a mark: %v", err)
	}
	if marks, err := c.b.marks.Claim(t.Context(), []change.Term{{Partition: p, Epoch: s.Owner.Epoch}}); err != nil ||
		marks[0].Position.Compare(checkpointtest.Event(7)) != 0 {
		t.Errorf("the recipient claims %+v, %v", marks, err)
	}
	if err := c.save(c.b, s.Owner.Epoch, 9); err != nil {
		t.Errorf("the recipient saves a mark: %v", err)
	}
	for range 2 {
		if err := c.a.keeper.Close(t.Context(), r); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if s := c.wantOwner(c.b, 9); s.Record.Revision != 0 || s.Answer.Revision != 0 {
		t.Errorf("after the end there are %+v and %+v", s.Record, s.Answer)
	}
}

// A mark that a switch would not move stays as it is, with who has saved it and why: also one that stands there already.
func TestMarkThatStandsBehindStays(t *testing.T) {
	for _, at := range []int{7, 9} {
		c := newPlace(t)
		if err := c.save(c.a, c.epoch, 9); err != nil {
			t.Fatal(err)
		}
		before := c.kv("mark/%05d", p)
		s := c.prepared()
		if _, err := c.a.keeper.Switch(t.Context(), s.Record, s.Answer, c.mark(c.epoch, at)); err != nil {
			t.Fatal(err)
		}
		c.wantOwner(c.b, 9)
		if after := c.kv("mark/%05d", p); after != before {
			t.Errorf("a switch at %d wrote the mark at %d again", at, 9)
		}
	}
}

func TestPartitionWithoutAMarkMoves(t *testing.T) {
	c := newPlace(t)
	s := c.prepared()
	if _, err := c.a.keeper.Switch(t.Context(), s.Record, s.Answer, checkpoint.Mark{Partition: p, Epoch: c.epoch}); err != nil {
		t.Fatal(err)
	}
	c.wantOwner(c.b, 0)
}

// What was different from what the donor has read makes its switch stale, and nothing is written.
func TestSwitchIsFenced(t *testing.T) {
	for name, meanwhile := range map[string]func(c *place, r ledger.Record){
		"the donor was evicted": func(c *place, _ ledger.Record) { c.delete("owner/%05d", p) },
		"the partition was claimed again": func(c *place, _ ledger.Record) {
			c.delete("owner/%05d", p)
			c.claim(c.a)
		},
		"somebody else owns it": func(c *place, _ ledger.Record) {
			c.delete("owner/%05d", p)
			c.claim(c.b)
		},
		"the donor's lease has ended":     func(c *place, _ ledger.Record) { c.revoke(c.a) },
		"the recipient's lease has ended": func(c *place, _ ledger.Record) { c.revoke(c.b) },
		"the record was taken away": func(c *place, r ledger.Record) {
			if err := c.b.keeper.Close(c.Context(), r); err != nil {
				c.Error(err)
			}
		},
		"the record was deleted by hand": func(c *place, _ ledger.Record) { c.delete("handoff/%05d", p) },
		"the recipient has refused": func(c *place, r ledger.Record) {
			if err := c.b.keeper.Answer(c.Context(), r, "too busy"); err != nil {
				c.Error(err)
			}
		},
		"the mark was rewound": func(c *place, _ ledger.Record) {
			if _, err := c.b.marks.Rewind(c.Context(), p, checkpointtest.Event(1), "operator", "test"); err != nil {
				c.Error(err)
			}
		},
		"the marks were adopted": func(c *place, _ ledger.Record) {
			last := checkpointtest.Origin("c1")
			next := last
			next.Incarnation++
			if err := c.b.marks.Adopt(c.Context(), last, next); err != nil {
				c.Error(err)
			}
		},
	} {
		for when, during := range map[string]bool{"before": false, "meanwhile": true} {
			t.Run(name+"/"+when, func(t *testing.T) {
				c := newPlace(t)
				if err := c.save(c.a, c.epoch, 3); err != nil {
					t.Fatal(err)
				}
				s := c.prepared()
				if during { // between the reading and the writing of the switch
					second(c.a.link, func() { meanwhile(c, s.Record) })
				} else {
					meanwhile(c, s.Record)
				}
				before := c.kv("owner/%05d", p)
				_, err := c.a.keeper.Switch(t.Context(), s.Record, s.Answer, c.mark(c.epoch, 7))
				c.wantStale(err)
				if after := c.kv("owner/%05d", p); !during && after != before {
					t.Errorf("the owner key was written: %+v, before it was %+v", after, before)
				}
				if mark, _ := c.b.marks.Load(t.Context(), p); mark.Position.Compare(checkpointtest.Event(7)) == 0 {
					t.Error("the mark was moved")
				}
			})
		}
	}
}

func (c *place) delete(format string, args ...any) {
	c.Helper()
	if _, err := c.raw.Delete(c.Context(), c.key(format, args...)); err != nil {
		c.Fatal(err)
	}
}

func TestMarkSavedMeanwhileIsNoObstacle(t *testing.T) {
	c := newPlace(t)
	s := c.prepared()
	second(c.a.link, func() {
		if err := c.save(c.a, c.epoch, 5); err != nil {
			t.Error(err)
		}
	})
	if _, err := c.a.keeper.Switch(t.Context(), s.Record, s.Answer, c.mark(c.epoch, 7)); err != nil {
		t.Fatal(err)
	}
	c.wantOwner(c.b, 7)
}

func TestSwitchWhoseAnswerGotLostIsReadBack(t *testing.T) {
	c := newPlace(t)
	s := c.prepared()
	ctx, cancel := context.WithCancel(t.Context())
	second(c.a.link, func() {
		muted := c.a.link.Mute()
		go func() { <-muted; cancel() }()
	})
	if _, err := c.a.keeper.Switch(ctx, s.Record, s.Answer, c.mark(c.epoch, 7)); err == nil || errors.Is(err, ledger.ErrStale) {
		t.Fatalf("a switch without an answer gave %v", err)
	}
	s2 := c.wantOwner(c.b, 7)
	r, err := c.a.keeper.Switch(t.Context(), s.Record, s.Answer, c.mark(c.epoch, 8))
	if err != nil || r != s2.Record {
		t.Errorf("switched again: %+v, %v; the record is %+v", r, err, s2.Record)
	}
	c.wantOwner(c.b, 7)
}

func TestSwitchThatComesLateFindsTheHandoffClosed(t *testing.T) {
	c := newPlace(t)
	s := c.prepared()
	ctx, cancel := context.WithCancel(t.Context())
	var deliver func()
	second(c.a.link, func() {
		held, late := c.a.link.Hold()
		deliver = late
		go func() { <-held; cancel() }()
	})
	if _, err := c.a.keeper.Switch(ctx, s.Record, s.Answer, c.mark(c.epoch, 7)); err == nil {
		t.Fatal("a switch that was held back has succeeded")
	}
	if err := c.a.keeper.Close(t.Context(), s.Record); err != nil {
		t.Fatal(err)
	}
	deliver()
	if s := c.wantOwner(c.a, 0); s.Owner.Epoch != c.epoch {
		t.Errorf("the donor's epoch is %s, it was %s", s.Owner.Epoch, c.epoch)
	}
	if err := c.save(c.a, c.epoch, 7); err != nil {
		t.Errorf("the donor saves: %v", err)
	}
}

// Of a switch and an eviction that run at the same time one wins, cleanly.
func TestSwitchAndEvictionRace(t *testing.T) {
	c := newPlace(t)
	won := map[bool]int{}
	for range 30 {
		s := c.prepared()
		var race sync.WaitGroup
		var err error
		var evicted bool
		race.Go(func() { _, err = c.a.keeper.Switch(t.Context(), s.Record, s.Answer, c.mark(c.epoch, 7)) })
		race.Go(func() {
			key := c.key("owner/%05d", p)
			resp, err := c.raw.Txn(t.Context()).
				If(clientv3.Compare(clientv3.ModRevision(key), "=", int64(c.epoch.Revision))).
				Then(clientv3.OpDelete(key)).
				Commit()
			evicted = err == nil && resp.Succeeded
		})
		race.Wait()
		if switched := err == nil; switched == evicted {
			t.Fatalf("switched: %t (%v), evicted: %t", switched, err, evicted)
		}
		if err != nil {
			c.wantStale(err)
		}
		won[evicted]++
		sight := c.look()
		if err := c.a.keeper.Close(t.Context(), sight.Record); err != nil {
			t.Fatal(err)
		}
		if !evicted {
			c.delete("owner/%05d", p)
		}
		c.epoch = c.claim(c.a)
	}
	t.Logf("evicted %d times, switched %d times", won[true], won[false])
}

func TestOneHandoffAtATime(t *testing.T) {
	c := newPlace(t)
	orders := []ledger.Record{c.order(), c.order()}
	orders[1].By = "another operator"
	errs := make([]error, len(orders))
	var race sync.WaitGroup
	for i, r := range orders {
		race.Go(func() { _, errs[i] = []seat{c.a, c.b}[i].keeper.Prepare(t.Context(), r) })
	}
	race.Wait()
	if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), ledger.ErrMoving) {
		t.Errorf("two operators at once: %v", errs)
	}
	if records, err := c.a.keeper.List(t.Context()); err != nil || len(records) != 1 {
		t.Errorf("%+v, %v", records, err)
	}
}

func TestPreparingAgainGivesTheRecordThatStands(t *testing.T) {
	c := newPlace(t)
	order := c.order()
	r, err := c.b.keeper.Prepare(t.Context(), order)
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.a.keeper.Prepare(t.Context(), order)
	if err != nil || again.Revision != r.Revision {
		t.Errorf("%+v, %v; before %+v", again, err, r)
	}
}

func TestNobodyGivesWhatIsNotItsOwn(t *testing.T) {
	c := newPlace(t)
	order := c.order()
	order.Epoch.Revision--
	_, err := c.a.keeper.Prepare(t.Context(), order)
	c.wantStale(err)
	order = c.order()
	order.From = ledger.Party{Node: "node-c", Process: "c"}
	_, err = c.a.keeper.Prepare(t.Context(), order)
	c.wantStale(err)
}

// A node takes what it has written with it.
func TestRecordAndAnswerGoWithTheirNodes(t *testing.T) {
	c := newPlace(t)
	c.prepared()
	c.revoke(c.b)
	if s := c.look(); s.Answer.Revision != 0 || s.Record.Revision == 0 || !s.Absent {
		t.Errorf("without the recipient: %+v", s)
	}
	if err := c.b.keeper.Answer(t.Context(), c.look().Record, ""); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a recipient without a membership answers: %v", err)
	}
	c.revoke(c.a)
	if s := c.look(); s.Record.Revision != 0 || s.Owner.Process != "" {
		t.Errorf("without the donor: %+v", s)
	}
}

func TestSwitchedRecordGoesWithItsDonor(t *testing.T) {
	c := newPlace(t)
	s := c.prepared()
	if _, err := c.a.keeper.Switch(t.Context(), s.Record, s.Answer, c.mark(c.epoch, 7)); err != nil {
		t.Fatal(err)
	}
	c.revoke(c.a)
	if s := c.wantOwner(c.b, 7); s.Record.Revision != 0 {
		t.Errorf("the record is still there: %+v", s.Record)
	}
}

// Where marks stand elsewhere, they are saved under the donor's epoch before anything is switched.
func TestMarksElsewhereAreSavedFirst(t *testing.T) {
	c := newPlace(t)
	elsewhere := checkpoint.NewMemory(n)
	if _, err := elsewhere.Found(t.Context(), checkpointtest.Origin("c1")); err != nil {
		t.Fatal(err)
	}
	term := change.Term{Partition: p, Epoch: c.epoch}
	if _, err := elsewhere.Claim(t.Context(), []change.Term{term}); err != nil {
		t.Fatal(err)
	}
	keeper := New(c.client(), n, elsewhere)
	s := c.prepared()
	if _, err := keeper.Switch(t.Context(), s.Record, s.Answer, c.mark(c.epoch, 7)); err != nil {
		t.Fatal(err)
	}
	s = c.wantOwner(c.b, 0)
	marks, err := elsewhere.Claim(t.Context(), []change.Term{{Partition: p, Epoch: s.Owner.Epoch}})
	if err != nil || marks[0].Position.Compare(checkpointtest.Event(7)) != 0 {
		t.Errorf("the recipient claims %+v, %v", marks, err)
	}
	if err := elsewhere.Save(t.Context(), []checkpoint.Mark{c.mark(c.epoch, 9)})[0]; !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("the donor saves: %v", err)
	}
	if err := keeper.Close(t.Context(), s.Record); err != nil {
		t.Fatal(err)
	}

	// The donor whose mark somebody else has claimed switches nothing.
	c.delete("owner/%05d", p)
	c.epoch = c.claim(c.a)
	s = c.prepared()
	higher := change.Epoch{Incarnation: c.epoch.Incarnation, Revision: c.epoch.Revision + 1000}
	if _, err := elsewhere.Claim(t.Context(), []change.Term{{Partition: p, Epoch: higher}}); err != nil {
		t.Fatal(err)
	}
	_, err = keeper.Switch(t.Context(), s.Record, s.Answer, c.mark(c.epoch, 11))
	c.wantStale(err)
	c.wantOwner(c.a, 0)
}

func (c *place) client() *etcd.Client {
	c.Helper()
	client, err := etcd.Dial(c.Context(), c.cfg)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = client.Close() })
	return client
}

func TestHintsTellOfEveryChangeAndAfterEveryCut(t *testing.T) {
	c := newPlace(t)
	ctx, cancel := context.WithCancel(t.Context())
	hints := c.b.keeper.Hints(ctx)
	wait := func(what string) {
		t.Helper()
		timeout := time.NewTimer(30 * time.Second)
		defer timeout.Stop()
		select {
		case <-hints:
		case <-timeout.C:
			t.Fatalf("no hint of %s", what)
		}
	}
	wait("the beginning")
	r, err := c.a.keeper.Prepare(t.Context(), c.order())
	if err != nil {
		t.Fatal(err)
	}
	wait("the record")
	if err := c.a.keeper.Close(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	wait("its end")
	cancel()
	for range hints {
		continue // until it is closed
	}
}

func TestWhatCannotBeReadIsLeftAlone(t *testing.T) {
	c := newPlace(t)
	for _, value := range []string{"no record", `{"v":2}`, `{"v":1,"phase":"prepared"}`} {
		if _, err := c.raw.Put(t.Context(), c.key("handoff/%05d", p), value); err != nil {
			t.Fatal(err)
		}
		if _, err := c.a.keeper.Look(t.Context(), p); err == nil {
			t.Errorf("%s was read", value)
		}
		if _, err := c.a.keeper.Prepare(t.Context(), c.order()); err == nil {
			t.Errorf("%s was written over", value)
		}
		if records, err := c.a.keeper.List(t.Context()); err != nil || len(records) != 0 {
			t.Errorf("%s: %+v, %v", value, records, err)
		}
	}
}
