package retention_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/internal/retry"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/retention"
	"github.com/mongostream/streamer/retention/retentiontest"
)

// A liar is a store that answers, while it lies, as no store should: it says that it has stored
// what it has not, or half of it, does not know what it has, returns something else, lists too
// little, keeps what it deletes, is slow, fails, and its clock jumps.
type liar struct {
	*retentiontest.Memory

	mu    sync.Mutex
	dice  *rand.Rand
	lies  bool
	ahead time.Duration // of its clock
}

func newLiar(seed uint64) *liar {
	s := &liar{dice: rand.New(rand.NewPCG(seed, 40))}
	s.Memory = &retentiontest.Memory{Clock: func() time.Time {
		s.mu.Lock()
		defer s.mu.Unlock()
		return time.Now().Add(s.ahead)
	}}
	return s
}

// roll returns a number below n while the store lies, and n otherwise.
func (s *liar) roll(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lies {
		return n
	}
	return s.dice.IntN(n)
}

func (s *liar) lie(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lies = on
}

var errLiar = errors.New("internal error")

func (s *liar) Put(ctx context.Context, key string, data []byte) error {
	switch s.roll(10) {
	case 0:
		return nil
	case 1:
		return s.Memory.Put(ctx, key, data[:len(data)/2])
	case 2:
		return errors.Join(s.Memory.Put(ctx, key, data), errLiar)
	case 3:
		return errLiar
	case 4:
		if err := retry.Sleep(ctx, time.Duration(s.roll(90))*time.Second); err != nil {
			return err
		}
	}
	return s.Memory.Put(ctx, key, data)
}

func (s *liar) Get(ctx context.Context, key string, offset, n int64) ([]byte, retention.Object, error) {
	data, about, err := s.Memory.Get(ctx, key, offset, n)
	switch s.roll(30) {
	case 0:
		return nil, retention.Object{}, retention.ErrNotFound
	case 1:
		return []byte("<html>"), retention.Object{Name: about.Name, Size: 6, Modified: about.Modified}, nil
	case 2:
		return data[:len(data)/2], about, err
	case 3:
		return nil, retention.Object{}, errLiar
	case 4:
		if err := retry.Sleep(ctx, time.Duration(s.roll(90))*time.Second); err != nil {
			return nil, retention.Object{}, err
		}
	}
	return data, about, err
}

func (s *liar) List(ctx context.Context, folder, after string) ([]retention.Object, bool, error) {
	objects, more, err := s.Memory.List(ctx, folder, after)
	switch s.roll(10) {
	case 0:
		return objects[:len(objects)/2], false, err
	case 1:
		return objects[:max(0, len(objects)-1)], false, err
	case 2:
		return nil, false, errLiar
	}
	return objects, more, err
}

func (s *liar) Delete(ctx context.Context, key string) error {
	if s.roll(3) == 0 {
		return nil
	}
	return s.Memory.Delete(ctx, key)
}

func (s *liar) Now(ctx context.Context) (time.Time, error) {
	if n := s.roll(20); n < 2 {
		s.mu.Lock()
		s.ahead += time.Duration(2*n-1) * time.Duration(s.dice.IntN(180)) * time.Minute
		s.mu.Unlock()
	}
	return s.Memory.Now(ctx)
}

// missing returns the first change that was neither read, once and in order, nor is within a loss.
func missing(all []changetest.Event, got []change.Position, losses []oplog.Loss) error {
	for _, e := range all {
		p := e.Position()
		if len(got) > 0 && got[0].Compare(p) == 0 {
			got = got[1:]
			continue
		}
		told := slices.ContainsFunc(losses, func(l oplog.Loss) bool {
			concerns := len(l.Namespaces) == 0 || slices.Contains(l.Namespaces, "shop."+e.Coll)
			return concerns && p.After(l.From) && l.To.Covers(p)
		})
		if !told {
			return fmt.Errorf("change %d at %s is missing silently; losses %v", e.ID, e.Time, losses)
		}
	}
	if len(got) > 0 {
		return fmt.Errorf("%d changes come twice, or not in their order", len(got))
	}
	return nil
}

// Whatever a store answers for a while, and however its writers restart and take over meanwhile:
// the chain has each change once, without a loss, when the store has told the truth again before
// the oplog lost anything.
func TestStoreThatLiesCostsNothing(t *testing.T) {
	afterLies(t, 0, func(n *node, all []changetest.Event, got []change.Position, losses []oplog.Loss) error {
		_, trouble := n.writer.Trouble()
		// Two writers may have gone on from different segments that end at the same place.
		losses = slices.DeleteFunc(losses, func(l oplog.Loss) bool { return l.From.Compare(l.To) == 0 })
		if len(losses) > 0 {
			return fmt.Errorf("losses %v", losses)
		}
		return errors.Join(trouble, same(got, positions(all)))
	})
}

// Where the store lies while segments expire and the oplog loses changes, each change is read once,
// or is within a loss: also by those who read meanwhile.
func TestStoreThatLiesHidesNothing(t *testing.T) {
	afterLies(t, 60, func(_ *node, all []changetest.Event, got []change.Position, losses []oplog.Loss) error {
		return missing(all, got, losses)
	})
}

// afterLies reads what has been written after the first change while stores lied, when they tell
// the truth again, and judges it.
func afterLies(t *testing.T, keeps int, judge func(n *node, all []changetest.Event, got []change.Position, losses []oplog.Loss) error) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mongo, store := newMongo(), newLiar(seed)
				all := lied(t, mongo, store, keeps)
				n := start(t, mongo, store, retention.WriterConfig{Node: "a", Shared: true})
				defer n.stop()
				n.pass(30 * time.Minute)
				mongo.Truncate(1)
				got, losses := n.read(all[0].Position(), all[len(all)-1].Position())
				if err := judge(n, all[1:], got, losses); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// lied writes changes while the store lies, with two writers that restart, and returns them. After
// some rounds the oplog loses all but the newest changes, if keeps says how many stay.
func lied(t *testing.T, mongo *oplogtest.Log, store *liar, keeps int) (all []changetest.Event) {
	t.Helper()
	cfg := func(node string) retention.WriterConfig {
		c := retention.WriterConfig{Node: node, Shared: true, Rank: func() int { return len(node) - 1 }}
		if keeps > 0 {
			c.MaxBytes = 20_000
		}
		return c
	}
	nodes := []*node{start(t, mongo, store, cfg("a")), start(t, mongo, store, cfg("bb"))}
	all = write(mongo, 40, 0)
	nodes[0].pass(5 * time.Minute)
	for round := range 12 {
		store.lie(true)
		all = append(all, write(mongo, 30, int64(1000*(round+1)))...)
		nodes[0].pass(time.Duration(1+store.roll(6)) * time.Minute)
		if keeps > 0 {
			got, losses := nodes[0].read(all[0].Position(), all[len(all)-1].Position())
			if err := missing(all[1:], got, losses); err != nil {
				t.Error(err)
			}
		}
		if i := store.roll(4); i < len(nodes) {
			nodes[i].stop()
			nodes[i] = start(t, mongo, store, cfg([]string{"a", "bb"}[i]))
		}
		if keeps > 0 && store.roll(3) == 0 {
			mongo.Truncate(keeps)
		}
		store.lie(store.roll(3) > 0)
		nodes[0].pass(time.Minute)
	}
	store.lie(false)
	for _, n := range nodes {
		n.stop()
	}
	return all
}

// A store whose clock jumps back, or stands still, delays no take-over: the time since a node has
// seen the last segment counts, too.
func TestStoppedClockDelaysNoTakeOver(t *testing.T) {
	for name, clock := range map[string]func(now time.Time, since time.Duration) time.Time{
		"it jumps back":   func(now time.Time, _ time.Duration) time.Time { return now.Add(-24 * time.Hour) },
		"it stands still": func(now time.Time, since time.Duration) time.Time { return now.Add(-since) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var broken time.Time // since then
				mongo, store := newMongo(), &retentiontest.Memory{Clock: func() time.Time {
					if broken.IsZero() {
						return time.Now()
					}
					return clock(time.Now(), time.Since(broken))
				}}
				a := start(t, mongo, store, retention.WriterConfig{Node: "a", Shared: true})
				all := write(mongo, 20, 0)
				a.pass(2 * time.Minute)
				a.stop()
				broken = time.Now()
				b := start(t, mongo, store, retention.WriterConfig{Node: "b", Shared: true})
				defer b.stop()
				all = append(all, write(mongo, 20, 100)...)
				b.pass(10 * time.Minute)
				events := 0
				for _, h := range verify(t, store) {
					events += h.Events
				}
				if events != len(all) {
					t.Errorf("%d changes are stored, %d were written", events, len(all))
				}
			})
		})
	}
}

// A node of an earlier build neither continues nor steps over what a later one has written in a
// form that it does not know: that is its trouble, and no loss.
func TestLaterFormatsAreLeftToLaterBuilds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		later := start(t, mongo, store, retention.WriterConfig{Node: "later", Shared: true})
		write(mongo, 20, 0)
		later.pass(2 * time.Minute)
		later.stop()
		headers := verify(t, store)
		store.Damage(seg(int(headers[len(headers)-1].Number)), func(b []byte) []byte {
			binary.LittleEndian.PutUint16(b[10:], 2) // the least reader
			end := 24 + binary.LittleEndian.Uint32(b[12:])
			binary.LittleEndian.PutUint32(b[end:], crc32.Checksum(b[:end], crc32.MakeTable(crc32.Castagnoli)))
			return b
		})
		before := store.Keys()
		n := start(t, mongo, store, retention.WriterConfig{Node: "earlier", Shared: true})
		defer n.stop()
		write(mongo, 40, 100)
		n.pass(10 * time.Minute)
		if _, err := n.writer.Trouble(); !errors.Is(err, retention.ErrFormat) {
			t.Errorf("trouble: %v", err)
		}
		if after := store.Keys(); !slices.Equal(after, before) {
			t.Errorf("it has written: %v instead of %v", after, before)
		}
	})
}

// Another deployment, and another incarnation of the cluster, have chains of their own in a store:
// none is read, continued or expired for another one.
func TestChainsOfOthersAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		ours := retention.NewChain(store, "one", 1)
		for _, c := range []*retention.Chain{ours, retention.NewChain(store, "one", 2), retention.NewChain(store, "another", 1)} {
			if extent, err := c.Extent(t.Context()); err != nil || extent != (retention.Extent{}) {
				t.Errorf("%s has %+v of others, %v", c.Folder(), extent, err)
			}
			before := store.Keys()
			n := startOn(t, mongo, c, retention.WriterConfig{MaxBytes: 1}, func(*retention.SourceConfig) {})
			write(mongo, 40, 0)
			for range 3 {
				n.pass(time.Hour)
			}
			n.stop()
			after := store.Keys()
			for _, key := range before {
				if !slices.Contains(after, key) {
					t.Errorf("%s has gone", key)
				}
			}
			for _, key := range after {
				if !slices.Contains(before, key) && !strings.HasPrefix(key, c.Folder()+"/") {
					t.Errorf("%s was written for %s", key, c.Folder())
				}
			}
			if len(after) == len(before) {
				t.Errorf("nothing was written for %s", c.Folder())
			}
		}
	})
}

// MongoDB may be upgraded: changes with tokens of the earlier version are in segments, and those
// after them in the oplog have tokens of the later one.
func TestTokensOfTwoVersionsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mongo, store := newMongo(), &retentiontest.Memory{}
		n := start(t, mongo, store, retention.WriterConfig{})
		defer n.stop()
		var all []changetest.Event
		for i := range 120 {
			all = append(all, mongo.Append(changetest.Event{ID: int64(i), Version: 1 + i/60, Pad: 50})...)
			if i == 79 {
				n.pass(2 * time.Minute)
				mongo.Truncate(1)
			}
		}
		n.pass(time.Second)
		for _, from := range []int{0, 39, 79} {
			got, losses := n.read(all[from].Position(), all[len(all)-1].Position())
			if err := same(got, positions(all[from+1:])); err != nil || len(losses) > 0 {
				t.Errorf("from change %d: %v, losses %v", from, err, losses)
			}
		}
	})
}
