package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/mongodb/mongodbtest"
)

// newStore makes a store in a database of its own.
func newStore(t *testing.T, uri string) *Store {
	t.Helper()
	c := mongodbtest.Dial(t, uri)
	return NewStore(c, mongodbtest.Database(t, c), "c", checkpointtest.Partitions)
}

// again is the same store as another process has it.
func (s *Store) again() *Store {
	return NewStore(s.client, s.checkpoints.Database().Name(), "c", s.partitions)
}

// claimed claims the name of a subscriber for the n-th process.
func (s *Store) claimed(t *testing.T, subscriber string, n int) checkpoint.Checkpoint {
	t.Helper()
	claim := checkpoint.Claim{Process: fmt.Sprint("process-", n), Started: time.Unix(1_700_000_000+int64(n), 0), Node: "a"}
	c, err := s.ClaimName(t.Context(), claim, checkpointtest.Exclusive(subscriber, checkpoint.Claim{}, checkpointtest.Event(1)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A partition is moved by one of many savers of a subscriber only, at the same time as all others:
// none of them undoes what another has done.
func TestConcurrentSaversMergeEachOther(t *testing.T) {
	t.Parallel()
	s := newStore(t, devmongotest.URI(t))
	const savers, rounds = 8, 12
	c := s.claimed(t, "gw", 1)
	var all sync.WaitGroup
	for p := range change.Partition(savers) {
		all.Go(func() {
			mine := s.again()
			for round := 1; round <= rounds; round++ {
				saved := checkpointtest.Exclusive("gw", c.Claim, change.Position{})
				saved.Positions = map[change.Partition]change.Position{p: checkpointtest.Event(round * 10)}
				if err := mine.Save(t.Context(), []checkpoint.Checkpoint{saved})[0]; err != nil {
					t.Errorf("partition %d, round %d: %v", p, round, err)
				}
			}
		})
	}
	all.Wait()
	got, err := s.Load(t.Context(), "gw")
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	for p := range change.Partition(savers) {
		if got[0].In(p).Compare(checkpointtest.Event(rounds*10)) != 0 {
			t.Errorf("partition %d is at %s", p, got[0].In(p))
		}
	}
	if got[0].Position.Compare(checkpointtest.Event(1)) != 0 {
		t.Errorf("the others are at %s", got[0].Position)
	}
}

// A rewind beside savers is before or after each of them: who saves with the generation before
// hears of it, and undoes nothing.
func TestRewindBesideSavers(t *testing.T) {
	t.Parallel()
	s := newStore(t, devmongotest.URI(t))
	s.begin(t, 1)
	c := s.claimed(t, "gw", 1)
	started, rewound := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			mine := s.again()
			for i := 1; ; i++ {
				select {
				case <-rewound: // one more, which must be refused
					err := mine.Save(t.Context(), []checkpoint.Checkpoint{checkpointtest.Exclusive("gw", c.Claim, checkpointtest.Event(1_000_000+n))})[0]
					if !errors.Is(err, checkpoint.ErrRewound) {
						t.Errorf("a save after the rewind gave %v", err)
					}
					return
				default:
				}
				err := mine.Save(t.Context(), []checkpoint.Checkpoint{checkpointtest.Exclusive("gw", c.Claim, checkpointtest.Event(i*10+n))})[0]
				if err != nil && !errors.Is(err, checkpoint.ErrRewound) {
					t.Errorf("save: %v", err)
				}
				if i == 3 && n == 0 {
					close(started)
				}
			}
		})
	}
	<-started
	next, err := s.Rewind(t.Context(), c.Key, checkpointtest.Event(2), "ann", "")
	close(rewound)
	all.Wait()
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Load(t.Context(), "gw")
	if err != nil || len(got) != 1 || got[0].Generation != 1 || got[0].Position.Compare(checkpointtest.Event(2)) != 0 || !got[0].At.Equal(next.At) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A write that a majority does not have is neither saved nor refused, until it has it.
func TestSaveWithoutAMajorityIsUnknown(t *testing.T) {
	t.Parallel()
	server := devmongotest.Start(t, devmongo.Config{})
	s := newStore(t, server.URI())
	c := s.claimed(t, "gw", 1)
	saved := []checkpoint.Checkpoint{checkpointtest.Exclusive("gw", c.Claim, checkpointtest.Event(9))}
	server.HoldMajority(true)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := s.Save(ctx, saved)[0]
	if err == nil || errors.Is(err, checkpoint.ErrFenced) || errors.Is(err, checkpoint.ErrRewound) {
		t.Errorf("without a majority: %v", err)
	}
	server.HoldMajority(false)
	if err := s.Save(t.Context(), saved)[0]; err != nil {
		t.Error(err)
	}
	if got, err := s.Load(t.Context(), "gw"); err != nil || got[0].Position.Compare(checkpointtest.Event(9)) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// fail has the server fail commands.
func fail(t *testing.T, s *Store, mode any, data bson.D) {
	t.Helper()
	admin := s.client.Driver().Database("admin")
	if err := admin.RunCommand(t.Context(), bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: data}}).Err(); err != nil {
		t.Fatal(err)
	}
}

func times(n int) bson.D { return bson.D{{Key: "times", Value: n}} }

// What the server says of a write does not matter where what stands can be read.
func TestFailuresOfWrites(t *testing.T) {
	t.Parallel()
	update := bson.E{Key: "failCommands", Value: bson.A{"update"}}
	s := newStore(t, devmongotest.Start(t, devmongo.Config{}).URI())
	c := s.claimed(t, "gw", 1)
	for i, step := range []struct {
		name  string
		times int
		data  bson.D
		saved bool
	}{
		{"the primary has stepped down, and another one is there", 1, bson.D{update, {Key: "errorCode", Value: 10107}}, true},
		{"connections break", 1, bson.D{update, {Key: "closeConnection", Value: true}}, true},
		{"connections break again and again", 2, bson.D{update, {Key: "closeConnection", Value: true}}, false},
		{"the user may not write any more", 2, bson.D{update, {Key: "errorCode", Value: 13}}, false},
		{"a write concern that is not told to be fulfilled, of a write that a majority has", 1, bson.D{update, {
			Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}},
		}}, true},
	} {
		position := checkpointtest.Event(10 + i)
		saved := []checkpoint.Checkpoint{checkpointtest.Exclusive("gw", c.Claim, position)}
		fail(t, s, times(step.times), step.data)
		err := s.Save(t.Context(), saved)[0]
		if (err == nil) != step.saved || errors.Is(err, checkpoint.ErrFenced) || errors.Is(err, checkpoint.ErrRewound) {
			t.Errorf("%s: %v", step.name, err)
		}
		fail(t, s, "off", bson.D{})
		if err := s.Save(t.Context(), saved)[0]; err != nil {
			t.Errorf("%s, afterwards: %v", step.name, err)
		}
		if got, err := s.Load(t.Context(), "gw"); err != nil || got[0].Position.Compare(position) != 0 {
			t.Errorf("%s: %+v, %v", step.name, got, err)
		}
	}
}

// A claim that was under way while an operator adopted the checkpoints has not got around it,
// whether its documents were there or not.
func TestClaimThatIsOvertakenByAnAdoptionIsFenced(t *testing.T) {
	t.Parallel()
	uri := devmongotest.URI(t)
	for _, there := range []bool{false, true} {
		s := newStore(t, uri)
		terms := s.begin(t, 1, 3, 4)
		if there {
			if _, err := s.ClaimTerms(t.Context(), checkpointtest.Subscriber, terms); err != nil {
				t.Fatal(err)
			}
		}
		last, err := s.Origin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := last
		next.Incarnation++
		send := s.write
		s.write = func(ctx context.Context, updates []mongo.WriteModel) (*mongo.BulkWriteResult, error) {
			s.write = send
			if err := s.again().Adopt(t.Context(), last, next); err != nil {
				t.Error(err)
			}
			return send(ctx, updates)
		}
		young := s.begin(t, 2, 3, 4)
		if claimed, err := s.ClaimTerms(t.Context(), checkpointtest.Subscriber, young); !errors.Is(err, checkpoint.ErrFenced) {
			t.Errorf("there %t: claimed %v, %v", there, claimed, err)
		}
		if claimed, err := s.ClaimTerms(t.Context(), checkpointtest.Subscriber, s.begin(t, 1, 3, 4)); err != nil || len(claimed) != 2 {
			t.Errorf("there %t: the next incarnation claimed %v, %v", there, claimed, err)
		}
	}
}

// An adoption whose answer gets lost is repeated, and then fences what it has not fenced yet.
func TestAdoptionIsRepeated(t *testing.T) {
	t.Parallel()
	s := newStore(t, devmongotest.Start(t, devmongo.Config{}).URI())
	old := s.begin(t, 1, 3)
	if _, err := s.ClaimTerms(t.Context(), checkpointtest.Subscriber, old); err != nil {
		t.Fatal(err)
	}
	last, err := s.Origin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := last
	next.Incarnation++
	fail(t, s, bson.D{{Key: "skip", Value: 1}}, bson.D{{Key: "failCommands", Value: bson.A{"update"}}, {Key: "errorCode", Value: 91}})
	if err := s.Adopt(t.Context(), last, next); err == nil || errors.Is(err, checkpoint.ErrOriginMoved) {
		t.Fatalf("adopt gave %v", err)
	}
	fail(t, s, "off", bson.D{})
	if err := s.Adopt(t.Context(), last, next); err != nil {
		t.Fatalf("adopt again: %v", err)
	}
	if err := s.Save(t.Context(), []checkpoint.Checkpoint{checkpointtest.Shared(old[0], checkpointtest.Event(5))})[0]; !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("an old epoch saved: %v", err)
	}
}

func TestDocumentsOfAnyShapeHarmNoOther(t *testing.T) {
	t.Parallel()
	s := newStore(t, devmongotest.URI(t))
	good := s.claimed(t, "gw", 1)
	strange := []any{
		bson.D{{Key: "_id", Value: 4711}, {Key: "checkpoint", Value: "{}"}},
		bson.D{{Key: "_id", Value: bson.D{{Key: "subscriber", Value: "composite"}}}, {Key: "checkpoint", Value: "{}"}},
		bson.D{{Key: "_id", Value: "bare"}, {Key: "version", Value: 1}},
		bson.D{{Key: "_id", Value: "shared/gw/7"}, {Key: "epoch", Value: "1.1"}},
		bson.D{{Key: "_id", Value: "shared/typed/00003"}, {Key: "epoch", Value: 7}, {Key: "checkpoint", Value: 7}},
		bson.D{{Key: "_id", Value: "exclusive/typed"}, {Key: "version", Value: "x"}, {Key: "checkpoint", Value: bson.D{}}, {Key: "history", Value: "x"}},
		bson.D{{Key: "_id", Value: "exclusive/empty"}},
	}
	if _, err := s.checkpoints.InsertMany(t.Context(), strange); err != nil {
		t.Fatal(err)
	}
	all, err := s.List(t.Context())
	if fault.Of(err) != fault.CheckpointCorrupt || len(all) != 1 || all[0].Key != good.Key {
		t.Errorf("listed %v, %v", all, err)
	}
	for _, id := range []string{"4711", "bare", "shared/gw/7", "shared/typed/00003", "exclusive/typed"} {
		if err == nil || !strings.Contains(err.Error(), id) {
			t.Errorf("%q is not named by %v", id, err)
		}
	}
	if all, err := s.Load(t.Context(), "typed"); fault.Of(err) != fault.CheckpointCorrupt || len(all) != 0 {
		t.Errorf("loaded %v, %v", all, err)
	}
	if _, err := s.ClaimTerms(t.Context(), "typed", s.begin(t, 1, 3)); fault.Of(err) != fault.CheckpointCorrupt {
		t.Errorf("claim gave %v", err)
	}
	if _, err := s.History(t.Context(), checkpoint.Key{Subscriber: "typed"}); err != nil {
		t.Errorf("history gave %v", err)
	}
	if c := s.claimed(t, "empty", 1); c.Claim.Number != 1 {
		t.Errorf("claimed %+v", c)
	}
	if err := s.Delete(t.Context(), "typed"); err != nil {
		t.Error(err)
	}
	if all, err := s.Load(t.Context(), "typed"); err != nil || len(all) != 0 {
		t.Errorf("after deletion %v, %v", all, err)
	}
}
