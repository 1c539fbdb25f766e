package checkpoint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/snapshot"
)

// Reason says why a checkpoint was saved.
type Reason string

// The reasons.
const (
	ReasonInterval Reason = "interval" // the policy's time or count
	ReasonIdle     Reason = "idle"     // nothing happened, but the log moves on
	ReasonBegin    Reason = "begin"    // the first one of a session or a term
	ReasonFinal    Reason = "final"    // the last one of a session or a term that ended as planned
	ReasonHandoff  Reason = "handoff"  // the partition moved to another node
	ReasonRewind   Reason = "rewind"   // an operator moved it back
	ReasonImport   Reason = "import"   // an operator took it from elsewhere
)

// routine reports whether checkpoints of the reason come again and again and mean nothing each by itself.
func (r Reason) routine() bool { return r == ReasonInterval || r == ReasonIdle }

const (
	// MaxSubscribers is how many subscribers a store keeps: of more, those that were saved longest ago make room.
	MaxSubscribers = 10_000
	// MaxName is how many bytes the name of a subscriber and of its process have at most.
	MaxName = 256
	// MaxBytes is how large the stored form of a checkpoint is at most: one of 16384 partitions takes at most 40 bytes for each, and 14 more
	// with a token, and what is left of snapshots at most 128 KiB. etcd takes 1.5 MiB in a request.
	MaxBytes = 1280 << 10

	// maxToken is the largest resume token that is kept; of a larger one only the time is, which replays a little more. maxTokens bounds
	// those of one checkpoint together.
	maxToken, maxTokens = 16 << 10, 256 << 10

	// maxSnapshots bounds what is kept of the snapshots of one checkpoint, in bytes as they are stored.
	maxSnapshots = 128 << 10
)

// A Key names a checkpoint: a subscriber, and of a shared one the partition.
type Key struct {
	Subscriber string
	Shared     bool
	Partition  change.Partition
}

// String shows the key.
func (k Key) String() string {
	if k.Shared {
		return fmt.Sprintf("%s, partition %d", k.Subscriber, k.Partition)
	}
	return k.Subscriber
}

// A Claim is a process's hold on the name of an exclusive subscriber.
type Claim struct {
	// Number counts the processes that have claimed the name. Whoever saves with a lower one than stands is fenced.
	Number uint64
	// Process is its random id, Started when it started, by its own clock, but not later than when it was first heard of.
	Process string
	Started time.Time
	// Node is where it claimed, By its identity.
	Node, By string
}

// A Checkpoint is where a subscriber is: it has acknowledged everything up to Position, and more in Positions.
type Checkpoint struct {
	Key

	Position change.Position
	// Positions are those of an exclusive subscriber in partitions where it is elsewhere. Where Position is zero in a Save, the other partitions
	// stay as they are.
	Positions map[change.Partition]change.Position
	// Partitions is N, of which the positions are.
	Partitions int
	// Snapshots is what is left of the snapshots of its subscriptions, where the subscriber is at Position and Positions.
	Snapshots []snapshot.Progress
	// Generation counts the rewinds.
	Generation uint64
	// Claim is that of an exclusive subscriber, Epoch the term that saved a shared one; its revision is 0 where an operator wrote it.
	Claim Claim
	Epoch change.Epoch
	// Fingerprint names what the stream was opened with; a token is only good for the same one. It is empty where nobody knows.
	Fingerprint string
	// At is when, by the clock of the process that saved it; informative only. By is the node or the operator, Note what an operator said.
	At     time.Time
	By     string
	Reason Reason
	Note   string
}

// In returns where the subscriber is in a partition.
func (c Checkpoint) In(p change.Partition) change.Position {
	if at, elsewhere := c.Positions[p]; elsewhere {
		return at
	}
	return c.Position
}

// Earliest returns the position after which the log is to be read for all partitions.
func (c Checkpoint) Earliest() change.Position {
	earliest := c.Position
	for _, at := range c.Positions {
		if earliest.IsZero() || earliest.After(at) {
			earliest = at
		}
	}
	return earliest
}

// Recounted returns the checkpoint as one of n partitions: where it is of another number it is where it is earliest, and what is left of its
// snapshots is left of all partitions.
func (c Checkpoint) Recounted(n int) Checkpoint {
	if c.Partitions == n {
		return c
	}
	c.Position, c.Positions, c.Partitions = c.Earliest(), nil, n
	c.Snapshots = slices.Clone(c.Snapshots)
	for i := range c.Snapshots {
		c.Snapshots[i].Partitions = nil
	}
	return c
}

// Clone returns a checkpoint that aliases nothing.
func (c Checkpoint) Clone() Checkpoint {
	c.Position, c.Positions = c.Position.Clone(), maps.Clone(c.Positions)
	for p, at := range c.Positions {
		c.Positions[p] = at.Clone()
	}
	c.Snapshots = cloneSnapshots(c.Snapshots)
	return c
}

// Trimmed returns the checkpoint as stores keep it, which aliases nothing, or says what is wrong with it. A token that is too large, that
// nobody could read back, or that is one too many is replaced by its time, and of a snapshot of which too much is left all is left.
func (c Checkpoint) Trimmed() (Checkpoint, error) {
	switch {
	case c.Subscriber == "" || len(c.Subscriber) > MaxName || !utf8.ValidString(c.Subscriber):
		return Checkpoint{}, fmt.Errorf("a subscriber named %q: it must have 1 to %d bytes of UTF-8", c.Subscriber[:min(len(c.Subscriber), MaxName)], MaxName)
	case len(c.Claim.Process) > MaxName || !utf8.ValidString(c.Claim.Process):
		return Checkpoint{}, fmt.Errorf("a process of subscriber %q: its id must have at most %d bytes of UTF-8", c.Subscriber, MaxName)
	case c.Partitions < 1 || c.Partitions > change.MaxPartitions:
		return Checkpoint{}, fmt.Errorf("a checkpoint of %d partitions", c.Partitions)
	case c.Shared && int(c.Partition) >= c.Partitions:
		return Checkpoint{}, fmt.Errorf("partition %d of %d", c.Partition, c.Partitions)
	case !c.Shared && c.Partition != 0:
		return Checkpoint{}, fmt.Errorf("an exclusive checkpoint of partition %d", c.Partition)
	case c.Shared && len(c.Positions) > 0:
		return Checkpoint{}, errors.New("a shared checkpoint of several partitions")
	case c.Position.IsZero() && len(c.Positions) == 0:
		return Checkpoint{}, errors.New("a checkpoint without a position")
	}
	budget, elsewhere, whole := maxTokens, c.Positions, c.Position
	c.Position, c.Positions = trimmed(c.Position, &budget), nil
	c.At, c.Claim.Started = c.At.Round(0).UTC(), c.Claim.Started.Round(0).UTC()
	if c.Shared {
		c.Claim = Claim{}
	} else {
		c.Epoch = change.Epoch{}
	}
	var err error
	if c.Snapshots, err = trimmedSnapshots(c.Snapshots, c.Partitions); err != nil {
		return Checkpoint{}, fmt.Errorf("%s: %w", c.Key, err)
	}
	for _, p := range slices.Sorted(maps.Keys(elsewhere)) {
		if int(p) >= c.Partitions || elsewhere[p].IsZero() {
			return Checkpoint{}, fmt.Errorf("partition %d of %d has the position %s", p, c.Partitions, elsewhere[p])
		}
		if equal(elsewhere[p], whole) {
			continue
		}
		if at := trimmed(elsewhere[p], &budget); !equal(at, c.Position) {
			if c.Positions == nil {
				c.Positions = make(map[change.Partition]change.Position)
			}
			c.Positions[p] = at
		}
	}
	return c, nil
}

// trimmed returns a copy of a position, without its token where that is too large, unreadable or too much.
func trimmed(p change.Position, budget *int) change.Position {
	if p.Token == nil {
		return p
	}
	if parsed, err := change.ParseToken(p.Token); err != nil || parsed.Time != p.Time || len(p.Token) > min(maxToken, *budget) {
		return change.At(p.Time)
	}
	*budget -= len(p.Token)
	return p.Clone()
}

func equal(p, q change.Position) bool { return p.Time == q.Time && bytes.Equal(p.Token, q.Token) }

// Merge returns what stands after a checkpoint was saved over the one that stands (nil where there is none): the later position in each
// partition, and the snapshots of the one that is later. One of a higher generation, which only a restored store can meet, is taken as it is;
// where the partitions have been counted anew since, the one that stands is where it is earliest. changed is false where the result is what
// stands already. The error is ErrRewound or ErrFenced.
func Merge(stands *Checkpoint, c Checkpoint) (merged Checkpoint, changed bool, err error) {
	if stands == nil {
		if c.Position.IsZero() {
			return c, false, fmt.Errorf("%s: %w", c.Key, ErrNone)
		}
		return c, true, nil
	}
	switch {
	case !c.Shared && c.Claim.Number < stands.Claim.Number, c.Shared && c.Epoch.Compare(stands.Epoch) < 0,
		!c.Shared && c.Claim.Number == stands.Claim.Number && c.Claim.Process != stands.Claim.Process: // both claimed it, one before a backup was restored
		return *stands, false, fmt.Errorf("%s: %w", c.Key, ErrFenced)
	case c.Generation < stands.Generation:
		return *stands, false, fmt.Errorf("%s: %w", c.Key, ErrRewound)
	}
	newer := c.Generation > stands.Generation
	changed = newer || c.Claim.Number > stands.Claim.Number || c.Partitions != stands.Partitions
	before := stands.Recounted(c.Partitions)
	if newer && !c.Position.IsZero() {
		return c, true, nil
	}
	in := func(p change.Partition) change.Position {
		mine, told := c.Positions[p]
		switch {
		case newer && told:
			return mine
		case told, !c.Position.IsZero():
			return change.Later(before.In(p), c.In(p))
		}
		return before.In(p)
	}
	merged = c
	merged.Position, merged.Positions = change.Later(before.Position, c.Position), nil
	changed = changed || merged.Position.After(before.Position)
	for _, from := range []map[change.Partition]change.Position{before.Positions, c.Positions} {
		for p := range from {
			at := in(p)
			changed = changed || at.After(before.In(p))
			if equal(at, merged.Position) {
				continue
			}
			if merged.Positions == nil {
				merged.Positions = make(map[change.Partition]change.Position)
			}
			merged.Positions[p] = at
		}
	}
	if merged.settle(); merged.Position.After(before.Position) {
		changed = true
	}
	if !newer && before.Earliest().After(c.Earliest()) {
		merged.Snapshots = before.Snapshots
	} else if !changed {
		changed = !slices.EqualFunc(stands.Snapshots, c.Snapshots, sameProgress)
	}
	return merged, changed, nil
}

// settle has the position be that of some partition: where each is elsewhere, it is where the earliest is. Nobody is at another one, and so
// nobody would ever move it.
func (c *Checkpoint) settle() {
	if len(c.Positions) < c.Partitions {
		return
	}
	c.Position = change.Position{}
	c.Position = c.Earliest()
	maps.DeleteFunc(c.Positions, func(_ change.Partition, at change.Position) bool { return equal(at, c.Position) })
}

// Claimed returns the claim of a process that wants the name of the subscriber whose checkpoint stands (nil where there is none), at a time of the
// node's clock. A process that started earlier than the one that has it is refused with a *TakenError, as is one without a process id while
// another is there.
func (c Claim) Claimed(stands *Checkpoint, now time.Time) (Claim, error) {
	if c.Started.After(now) || c.Started.IsZero() {
		c.Started = now
	}
	c.Started = c.Started.Round(0).UTC()
	if stands == nil {
		c.Number = 1
		return c, nil
	}
	had := stands.Claim
	switch {
	case had.Process == c.Process:
		c.Number, c.Started = had.Number, had.Started
	case had.Started.After(c.Started):
		return Claim{}, &TakenError{Subscriber: stands.Subscriber, Claim: had}
	default:
		c.Number = had.Number + 1
	}
	return c, nil
}

// A TakenError says that another process has the name of a subscriber.
type TakenError struct {
	Subscriber string
	Claim      Claim
}

// Error implements error.
func (e *TakenError) Error() string {
	return fmt.Sprintf("subscriber %q is process %q, which started later, at %s, and connected to node %s", e.Subscriber, e.Claim.Process, e.Claim.Started.Format(time.RFC3339), e.Claim.Node)
}

// Unwrap makes it an ErrFenced.
func (e *TakenError) Unwrap() error { return ErrFenced }

// Rewound returns the checkpoint that a rewind to the position writes over the one that stands: each partition is there or earlier. The error is
// ErrForward where all of them are earlier, or says that there is no such position.
func (c Checkpoint) Rewound(to change.Position, incarnation uint64, by, why string) (Checkpoint, error) {
	switch {
	case to.IsZero():
		return Checkpoint{}, errors.New("a rewind to no position")
	case to.After(c.latest()):
		return Checkpoint{}, fmt.Errorf("%s from %s to %s: %w", c.Key, c.latest(), to, ErrForward)
	}
	elsewhere := c.Positions
	c.Position, c.Positions = earlier(c.Position, to), nil
	for p, at := range elsewhere {
		if at = earlier(at, to); !equal(at, c.Position) {
			if c.Positions == nil {
				c.Positions = make(map[change.Partition]change.Position)
			}
			c.Positions[p] = at
		}
	}
	c.Generation++
	c.Epoch = change.Epoch{Incarnation: incarnation}
	c.At, c.By, c.Reason, c.Note = time.Now().UTC(), by, ReasonRewind, why
	return c.Trimmed()
}

// Imported returns the checkpoint that an import writes over the one that stands (nil where there is none): the next generation, under the
// claim that stands, and an epoch that fences nobody of the incarnation.
func (c Checkpoint) Imported(stands *Checkpoint, o Origin) (Checkpoint, error) {
	if c.Shared && c.Partitions != o.Partitions {
		return Checkpoint{}, fmt.Errorf("%s of %d partitions, there are %d", c.Key, c.Partitions, o.Partitions)
	}
	if c.Position.IsZero() {
		return Checkpoint{}, errors.New("a checkpoint without a position")
	}
	if stands != nil {
		c.Generation, c.Claim = max(c.Generation, stands.Generation+1), stands.Claim
	}
	c.Epoch = change.Epoch{Incarnation: o.Incarnation}
	return c.Trimmed()
}

// earlier returns the one of two positions that is earlier in the log.
func earlier(p, q change.Position) change.Position {
	if p.After(q) {
		return q
	}
	return p
}

// latest returns where the subscriber is furthest.
func (c Checkpoint) latest() change.Position {
	latest := c.Position
	for _, at := range c.Positions {
		latest = change.Later(latest, at)
	}
	return latest
}

// Sort puts checkpoints into the order of their subscribers and partitions.
func Sort(all []Checkpoint) {
	slices.SortFunc(all, func(a, b Checkpoint) int {
		return cmp.Or(cmp.Compare(a.Subscriber, b.Subscriber), cmp.Compare(a.Partition, b.Partition))
	})
}
