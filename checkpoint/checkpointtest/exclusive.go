package checkpointtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

func testExclusive(h harness) {
	h.create()
	begin := first("gw-1")
	begin.Positions = at(200, Event(3))
	begin.Snapshots = snapshots(0)
	got, err := h.Store.ClaimName(h.Context(), process(1), begin)
	want := begin
	want.Claim = process(1)
	want.Claim.Number = 1
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		h.Errorf("claimed %v (-want +got):\n%s", err, diff)
	}
	h.want(want)
	c := Exclusive("gw-1", got.Claim, Event(20))
	c.Positions = map[change.Partition]change.Position{0: Event(21), 7: change.At(Event(40).Time), 255: Event(5)}
	c.Snapshots = snapshots(7)
	c.Note = "note"
	c.By = "knoten-ä/1"
	c.Fingerprint = "0123456789abcdef"
	h.mustSave(c)
	h.want(c)
	if _, there := h.find(checkpoint.Key{Subscriber: "gw-1", Shared: true}); there {
		h.Error("there is a shared one too")
	}
}

// A save keeps the stored positions of other partitions, and none moves back.
func testExclusiveMerges(h harness) {
	h.create()
	claim := h.claim("gw-1", 1).Claim
	save := func(position change.Position, positions map[change.Partition]change.Position) {
		h.Helper()
		c := Exclusive("gw-1", claim, position)
		c.Positions = positions
		h.mustSave(c)
	}
	want := func(position change.Position, positions map[change.Partition]change.Position) {
		h.Helper()
		got := h.load(checkpoint.Key{Subscriber: "gw-1"})
		if diff := cmp.Diff(positions, got.Positions); diff != "" || got.Position.Compare(position) != 0 {
			h.Errorf("the subscriber is at %s (-want +got):\n%s", got.Position, diff)
		}
	}
	save(Event(10), at(3, Event(20)))
	want(Event(10), at(3, Event(20)))
	save(change.Position{}, at(4, Event(15))) // a node that serves some partitions
	want(Event(10), map[change.Partition]change.Position{3: Event(20), 4: Event(15)})
	save(change.Position{}, at(3, Event(12)))
	save(Event(8), nil)
	want(Event(10), map[change.Partition]change.Position{3: Event(20), 4: Event(15)})
	save(Event(17), nil)
	want(Event(17), at(3, Event(20)))
	save(Event(30), nil)
	want(Event(30), nil)
	for i, s := range []Store{h.Store, h.Reopen()} {
		c := Exclusive("gw-1", claim, change.Position{})
		c.Positions = at(change.Partition(i), Event(40+i))
		if err := h.saveTo(s, c); err != nil {
			h.Errorf("save: %v", err)
		}
	}
	want(Event(30), map[change.Partition]change.Position{0: Event(40), 1: Event(41)})
}

// The progress of snapshots belongs to the later position; at the same position the last saved one
// counts.
func testSnapshots(h harness) {
	h.create()
	claim := h.claim("gw-1", 1).Claim
	save := func(n, read int) {
		h.Helper()
		c := Exclusive("gw-1", claim, Event(n))
		c.Snapshots = snapshots(read)
		h.mustSave(c)
	}
	want := func(read int) {
		h.Helper()
		if diff := cmp.Diff(snapshots(read), h.load(checkpoint.Key{Subscriber: "gw-1"}).Snapshots); diff != "" {
			h.Errorf("(-want +got):\n%s", diff)
		}
	}
	save(10, 1)
	want(1)
	save(10, 5)
	want(5)
	save(6, 9)
	want(5)
	save(12, 2)
	want(2)
	h.mustSave(Exclusive("gw-1", claim, Event(13)))
	if got := h.load(checkpoint.Key{Subscriber: "gw-1"}); got.Snapshots != nil {
		h.Errorf("snapshots %+v", got.Snapshots)
	}
	save(13, 3)
	part := Exclusive("gw-1", claim, change.Position{}) // by a session that has no other partitions
	part.Positions = at(0, Event(20))
	h.mustSave(part)
	want(3)
	if entries := h.history(checkpoint.Key{Subscriber: "gw-1"}); len(entries) == 0 || entries[0].Snapshots != nil {
		h.Errorf("the history is %+v", entries)
	}
}

func testUnclaimed(h harness) {
	h.create()
	c := process(1)
	c.Number = 1
	h.wantFenced("a save without a claim", h.save(Exclusive("gw-1", c, Event(5))))
	h.wantFenced("the same by a store that remembers nothing", h.saveTo(h.Reopen(), Exclusive("gw-1", c, Event(5))))
	h.wantNone(checkpoint.Key{Subscriber: "gw-1"})
}

func testClaimName(h harness) {
	h.create()
	mine := h.claim("gw-1", 1)
	h.mustSave(Exclusive("gw-1", mine.Claim, Event(20)))
	// The same process, at another node or after a lost reply.
	elsewhere := process(1)
	elsewhere.Node = "node-b"
	elsewhere.Started = began.Add(time.Hour)
	again, err := h.Reopen().ClaimName(h.Context(), elsewhere, first("gw-1"))
	isSame := again.Claim.Number == 1 && again.Claim.Started.Equal(mine.Claim.Started)
	if err != nil || !isSame || again.Position.Compare(Event(20)) != 0 {
		h.Errorf("claimed again as %+v, %v", again, err)
	}
	if again.Claim.Node != "node-b" {
		h.Errorf("claimed again at %s", again.Claim.Node)
	}
	h.mustSave(Exclusive("gw-1", mine.Claim, Event(21)))
	// The process's only session.
	elsewhere.Alone = true
	alone, err := h.Store.ClaimName(h.Context(), elsewhere, first("gw-1"))
	isNext := alone.Claim.Number == 2 && !alone.Claim.Alone
	isSame = alone.Claim.Process == mine.Claim.Process && alone.Claim.Started.Equal(mine.Claim.Started)
	if err != nil || !isNext || !isSame {
		h.Errorf("claimed alone as %+v, %v", alone, err)
	}
	h.wantFenced("a save of the session before", h.save(Exclusive("gw-1", mine.Claim, Event(22))))
	// A later process deposes it.
	later := h.claim("gw-1", 2)
	if later.Claim.Number != 3 || later.Position.Compare(Event(21)) != 0 || later.Claim.Process != process(2).Process {
		h.Errorf("claimed as %+v", later)
	}
	for name, s := range map[string]Store{"the same": h.Store, "another": h.Reopen()} {
		h.wantFenced(name+" store's save of the process before", h.saveTo(s, Exclusive("gw-1", mine.Claim, Event(22))))
		c, err := s.ClaimName(h.Context(), process(1), first("gw-1"))
		taken, is := errors.AsType[*checkpoint.TakenError](err)
		isByLater := is && taken.Claim.Process == later.Claim.Process && taken.Subscriber == "gw-1"
		if !isByLater || !errors.Is(err, checkpoint.ErrFenced) {
			h.Errorf("%s store let the process before claim %+v, %v", name, c, err)
		}
	}
	h.mustSave(Exclusive("gw-1", later.Claim, Event(22)))
	// A process with a wrong clock counts as started at its first claim.
	wrong := process(3)
	wrong.Started = time.Now().AddDate(10, 0, 0)
	ahead, err := h.Store.ClaimName(h.Context(), wrong, first("gw-1"))
	if err != nil || ahead.Claim.Number != 4 || ahead.Claim.Started.After(time.Now().Add(time.Minute)) {
		h.Errorf("claimed as %+v, %v", ahead, err)
	}
	h.want(ahead)
}

// Two processes have the same number if a backup was restored in between: the one in the store is
// the owner.
func testClaimOfAnother(h harness) {
	h.create()
	mine := h.claim("gw-1", 1)
	other := mine.Claim
	other.Process = "before the backup"
	h.wantFenced("a save of another process with the same number", h.save(Exclusive("gw-1", other, Event(50))))
	h.mustSave(Exclusive("gw-1", mine.Claim, Event(9)))
	other.Number += 3
	h.mustSave(Exclusive("gw-1", other, Event(10)))
	h.wantFenced("a save with the lower number", h.save(Exclusive("gw-1", mine.Claim, Event(60))))
}

func testClaimsRace(h harness) {
	h.create()
	const processes = 8
	var wg sync.WaitGroup
	claims := make([]checkpoint.Claim, processes)
	for i := range processes {
		store := h.Store
		if i%2 == 1 {
			store = h.Reopen()
		}
		wg.Go(func() {
			c, err := store.ClaimName(h.Context(), process(i), first("gw-1"))
			if _, taken := errors.AsType[*checkpoint.TakenError](err); err != nil && !taken {
				h.Errorf("claim of process %d: %v", i, err)
			}
			claims[i] = c.Claim
			if err := store.Save(h.Context(), []checkpoint.Checkpoint{Exclusive("gw-1", c.Claim, Event(10+i))})[0]; err != nil && !errors.Is(err, checkpoint.ErrFenced) {
				h.Errorf("save of process %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	numbers := make(map[uint64]string)
	for _, c := range claims {
		if other, there := numbers[c.Number]; there && c.Number > 0 {
			h.Errorf("%q and %q both have claim %d", c.Process, other, c.Number)
		}
		numbers[c.Number] = c.Process
	}
	last := claims[processes-1]
	if last.Number == 0 {
		h.Fatal("the last process was refused")
	}
	h.mustSave(Exclusive("gw-1", last, Event(100)))
	for _, c := range claims[:processes-1] {
		h.wantFenced(fmt.Sprintf("a save of %q", c.Process), h.save(Exclusive("gw-1", c, Event(200))))
	}
	if got := h.load(checkpoint.Key{Subscriber: "gw-1"}); got.Position.Compare(Event(100)) != 0 || got.Claim.Process != last.Process {
		h.Errorf("the checkpoint is %+v", got)
	}
}

// Nodes that serve partitions of one process save concurrently, and a later process claims
// meanwhile.
func testSaversRace(h harness) {
	h.create()
	claim := h.claim("gw-1", 1).Claim
	const savers, saves = 4, 10
	var wg sync.WaitGroup
	for i := range savers {
		store := h.Store
		if i%2 == 1 {
			store = h.Reopen()
		}
		wg.Go(func() {
			for n := range saves {
				c := Exclusive("gw-1", claim, change.Position{})
				c.Positions = at(change.Partition(i), Event(10+n))
				if err := store.Save(h.Context(), []checkpoint.Checkpoint{c})[0]; err != nil {
					h.Errorf("save %d of node %d: %v", n, i, err)
				}
			}
		})
	}
	wg.Wait()
	got := h.load(checkpoint.Key{Subscriber: "gw-1"})
	for i := range savers {
		if at := got.In(change.Partition(i)); at.Compare(Event(10+saves-1)) != 0 {
			h.Errorf("partition %d is at %s", i, at)
		}
	}
}

// The subscriber with the oldest save or claim makes room, by the store's own order; the clocks of
// nodes decide nothing.
func testTooMany(h harness) {
	h.create()
	name := func(n int) string { return fmt.Sprintf("gw-%05d", n) }
	at := func(n int) checkpoint.Checkpoint {
		c := first(name(n))
		c.At = c.At.Add(-time.Duration(n) * time.Hour)
		return c
	}
	term := h.term(0)
	h.mustSave(Shared(term, Event(1)))
	h.claim("bob/orders", 1) // of an identity: it makes room for nobody
	for n := range 4 {
		h.claim(name(n), 1)
	}
	var others []checkpoint.Checkpoint
	for n := 4; n < checkpoint.MaxSubscribers; n++ {
		c := at(n)
		c.Claim = process(1)
		c.Claim.Number = 1
		others = append(others, c)
	}
	h.fill(others)
	there := func(n int) bool {
		h.Helper()
		_, there := h.find(checkpoint.Key{Subscriber: name(n)})
		return there
	}
	if !there(0) || !there(checkpoint.MaxSubscribers-1) {
		h.Error("some made room that had not to")
	}
	h.mustSave(Exclusive(name(0), h.claim(name(0), 1).Claim, Event(5)))
	h.claim(name(2), 1)
	h.claim(name(checkpoint.MaxSubscribers), 1) // replaces 1
	h.claim(name(checkpoint.MaxSubscribers+1), 1)
	for i, kept := range map[int]bool{0: true, 1: false, 2: true, 3: false, checkpoint.MaxSubscribers: true, checkpoint.MaxSubscribers + 1: true} {
		if there(i) != kept {
			h.Errorf("others made room than those that were saved longest ago: %s is kept: %t", name(i), !kept)
		}
	}
	if entries := h.history(checkpoint.Key{Subscriber: name(1)}); len(entries) != 0 {
		h.Errorf("what made room has a history: %v", entries)
	}
	stored, err := h.Reopen().List(h.Context())
	if _, there := h.find(checkpoint.Key{Subscriber: "bob/orders"}); err != nil || len(stored) != checkpoint.MaxSubscribers+2 || !there {
		h.Errorf("%d checkpoints are kept, %v", len(stored), err)
	}
	h.wantAt(0, Event(1))
}

// The number of an identity's names is bounded. Further names are refused, and no other name makes
// room for them.
func testTooManyNames(h harness) {
	h.create()
	h.claim("bob/orders", 1)
	var others []checkpoint.Checkpoint
	for i := range checkpoint.MaxNames - 1 {
		c := first(fmt.Sprintf("ann/%05d", i))
		c.Claim = process(1)
		c.Claim.Number = 1
		others = append(others, c)
	}
	h.fill(others)
	h.claim("ann/last", 1)
	for _, s := range []Store{h.Store, h.Reopen()} {
		if _, err := s.ClaimName(h.Context(), process(1), first("ann/more")); !errors.Is(err, checkpoint.ErrNames) {
			h.Errorf("one more: %v", err)
		}
	}
	h.wantNone(checkpoint.Key{Subscriber: "ann/more"})
	h.claim("ann/00000", 2) // one that is there
	h.claim("anna/orders", 1)
	h.claim("an", 1)
	h.claim("ann", 1)
	if err := h.Store.Delete(h.Context(), "ann/00001"); err != nil {
		h.Fatal(err)
	}
	h.claim("ann/more", 1)
	stored, err := h.Store.List(h.Context())
	if err != nil || len(stored) != checkpoint.MaxNames+4 {
		h.Errorf("%d checkpoints are kept, %v", len(stored), err)
	}
}

func testClaimOfAnotherIdentity(h harness) {
	h.create()
	mine := h.claim("gw-1", 1)
	for n := range 3 { // earlier, the same and later
		c := process(n)
		c.By = "eve"
		if _, err := h.Store.ClaimName(h.Context(), c, first("gw-1")); !errors.Is(err, checkpoint.ErrForeign) {
			h.Errorf("process %d of another identity: %v", n, err)
		}
	}
	h.want(mine)
	h.mustSave(Exclusive("gw-1", mine.Claim, Event(9)))
}

// fill stores checkpoints of new exclusive subscribers.
func (h harness) fill(all []checkpoint.Checkpoint) {
	h.Helper()
	if h.Fill != nil {
		h.Fill(all)
		return
	}
	for _, c := range all {
		if _, err := h.Store.ClaimName(h.Context(), c.Claim, c); err != nil {
			h.Fatalf("claim %q: %v", c.Subscriber, err)
		}
	}
}
