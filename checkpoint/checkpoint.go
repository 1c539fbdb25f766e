package checkpoint

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/snapshot"
)

// Reason says why a checkpoint was saved.
type Reason string

// The reasons.
const (
	ReasonInterval Reason = "interval" // the policy's interval or event count
	ReasonIdle     Reason = "idle"     // the log advanced without events
	ReasonBegin    Reason = "begin"    // the beginning of a session or a term
	ReasonFinal    Reason = "final"    // the planned end of a session or a term
	ReasonHandoff  Reason = "handoff"  // the partition moved to another node
	ReasonRewind   Reason = "rewind"   // an operator rewound it
	ReasonImport   Reason = "import"   // an operator imported it
)

// routine reports whether checkpoints with this reason are frequent and not significant.
func (r Reason) routine() bool { return r == ReasonInterval || r == ReasonIdle }

const (
	// MaxSubscribers bounds the exclusive subscribers without an identity in a store: beyond it,
	// those of them that were saved longest ago are removed.
	MaxSubscribers = 10_000
	// MaxNames bounds the exclusive subscribers of one identity in a store: beyond it, new names
	// are refused.
	MaxNames = 1000
	// MaxName bounds the name of a subscriber, with its identity's part, and the ID of its process,
	// in bytes.
	MaxName = 512
	// MaxBytes bounds the stored form of a checkpoint. With 16384 partitions it takes at most 40
	// bytes for each, 14 more with a token, at most 256 KiB for snapshots, and 8 KiB for losses.
	// etcd accepts 1.5 MiB in a request.
	MaxBytes = 1408 << 10

	// maxToken bounds a stored resume token; a larger one is replaced by its time, so that a little
	// more is replayed. maxTokens bounds the tokens of one checkpoint together.
	maxToken, maxTokens = 16 << 10, 256 << 10

	// maxSnapshots bounds the stored snapshots of one checkpoint, in bytes.
	maxSnapshots = 256 << 10
)

// A Key identifies a checkpoint: a subscriber and, if it is shared, the partition.
type Key struct {
	Subscriber string
	Shared     bool
	Partition  change.Partition
}

// String formats the key.
func (k Key) String() string {
	if k.Shared {
		return fmt.Sprintf("%s, partition %d", k.Subscriber, k.Partition)
	}
	return k.Subscriber
}

// A Claim is a process's claim on the name of an exclusive subscriber.
type Claim struct {
	// Number counts the processes, and the lone sessions, that have claimed the name. A Save with a
	// lower number is fenced.
	Number uint64
	// Process is the random ID of the process, Started its start time, but not later than its first
	// claim.
	Process string
	Started time.Time
	// Node is the claiming node, By the identity of the process.
	Node, By string
	// Alone says that the process has no other session with the name, so that saves of its earlier
	// ones are fenced. It is not stored.
	Alone bool
}

// String describes the process.
func (c Claim) String() string {
	who := fmt.Sprintf("process %q", c.Process)
	if c.By != "" {
		who += fmt.Sprintf(" of %q", c.By)
	}
	return fmt.Sprintf("%s at node %s, started %s", who, c.Node, c.Started.Format(time.RFC3339))
}

// Owner returns the identity's part of a subscriber's name, up to the first slash and with it. It
// is empty if the name has none.
func Owner(subscriber string) string { return subscriber[:strings.IndexByte(subscriber, '/')+1] }

// HasRoom returns an error that wraps ErrNames if an identity's subscriber is new and the identity
// has n exclusive ones already.
func HasRoom(subscriber string, n int) error {
	if owner := Owner(subscriber); owner != "" && n >= MaxNames {
		return fmt.Errorf("%q: there are %d subscribers %s…: %w", subscriber, n, owner, ErrNames)
	}
	return nil
}

// A Checkpoint is the position of a subscriber: it has acknowledged everything up to Position, and
// more in Positions.
type Checkpoint struct {
	Key

	Position change.Position
	// Positions are the positions of an exclusive subscriber in partitions that differ from
	// Position. If Position is zero in a Save, the other partitions remain unchanged.
	Positions map[change.Partition]change.Position
	// Partitions is N at the time of the positions.
	Partitions int
	// Snapshots is the progress of the subscriber's snapshots at these positions, one for each
	// subscription and set of partitions with the same progress. If Position is zero in a Save, it
	// is the progress in the partitions of Positions, and does not change that in others.
	Snapshots []snapshot.Progress
	// Generation counts the rewinds.
	Generation uint64
	// Began is where a shared checkpoint began; zero if it is of an earlier version.
	Began Beginning
	// Claim is set for an exclusive subscriber, Epoch for a shared one; its revision is 0 if an
	// operator wrote the checkpoint.
	Claim Claim
	Epoch change.Epoch
	// Fingerprint identifies the stream's pipeline; tokens are valid only with the same pipeline.
	// Empty if unknown.
	Fingerprint string
	// Coverage is the coverage of the stream that moved the position; nil if unknown. The position
	// says nothing about other changes. Lapse is the coverage of earlier streams beyond that, nil
	// if none; in a Save, it is the lapse that was reported to the subscriber.
	Coverage *change.Coverage
	Lapse    *Lapse
	// Losses are those of the subscriber alone, oldest first: it came back too late, and the
	// position has passed them. They have times without tokens. In a Save, they are those of the
	// session: the stored checkpoint gets the ones that it passes, in the same write.
	Losses []Gap
	// At is the time of the save by the saver's clock, for information. By is the node or the
	// operator, Note an operator's comment.
	At     time.Time
	By     string
	Reason Reason
	Note   string
}

// A Beginning is where a shared subscriber's checkpoint of a partition began.
type Beginning struct {
	// At is the cluster time at which the subscriber began, in all partitions.
	At change.Timestamp
	// ID is random: a checkpoint that was deleted, lost or imported begins again with another one.
	ID string
}

// NewBeginning returns a Beginning at a time.
func NewBeginning(at change.Timestamp) Beginning { return Beginning{At: at, ID: rand.Text()[:10]} }

// Incarnation names the life of a shared checkpoint in an incarnation of the origin. Within one,
// the position only advances by acknowledgements, so that a target may skip the changes that it
// has, up to a position. A rewind, an import, a deletion, a repartition and an adoption begin
// another one, because the following repetition is intended.
func (c Checkpoint) Incarnation(origin uint64) string {
	return fmt.Sprintf("%d-%s-%d", origin, c.Began.ID, c.Generation)
}

// In returns the position in a partition.
func (c Checkpoint) In(p change.Partition) change.Position {
	if at, elsewhere := c.Positions[p]; elsewhere {
		return at
	}
	return c.Position
}

// Earliest returns the earliest position of all partitions.
func (c Checkpoint) Earliest() change.Position {
	earliest := c.Position
	for _, at := range c.Positions {
		if earliest.IsZero() {
			earliest = at
		} else {
			earliest = change.Earlier(earliest, at)
		}
	}
	return earliest
}

// Recounted returns the checkpoint for n partitions. If their number differs, all partitions get
// the earliest position, and incomplete snapshots remain for all partitions.
func (c Checkpoint) Recounted(n int) Checkpoint {
	if c.Partitions == n {
		return c
	}
	c.Position = c.Earliest()
	c.Positions = nil
	c.Partitions = n
	c.Snapshots = snapshot.Together(c.Snapshots)
	return c
}

// Clone returns a checkpoint that aliases nothing.
func (c Checkpoint) Clone() Checkpoint {
	c.Position = c.Position.Clone()
	c.Positions = maps.Clone(c.Positions)
	for p, at := range c.Positions {
		c.Positions[p] = at.Clone()
	}
	c.Snapshots = cloneSnapshots(c.Snapshots)
	c.Losses = slices.Clone(c.Losses)
	return c
}

// Trimmed validates the checkpoint and returns its stored form, which aliases nothing. A token that
// is too large, unreadable, or one too many is replaced by its time. A snapshot with too much
// progress is restarted. The error wraps ErrUnsavable.
func (c Checkpoint) Trimmed() (Checkpoint, error) {
	trimmed, err := c.trim()
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrUnsavable, err)
	}
	return trimmed, nil
}

func (c Checkpoint) trim() (Checkpoint, error) {
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
	budget := maxTokens
	elsewhere := c.Positions
	whole := c.Position
	c.Position = trimmed(c.Position, &budget)
	c.Positions = nil
	c.At = c.At.Round(0).UTC()
	c.Claim.Started = c.Claim.Started.Round(0).UTC()
	if c.Shared {
		c.Claim = Claim{}
	} else {
		c.Epoch = change.Epoch{}
		c.Began = Beginning{}
	}
	var err error
	if c.Snapshots, err = trimmedSnapshots(c.Snapshots, c.Partitions); err != nil {
		return Checkpoint{}, fmt.Errorf("%s: %w", c.Key, err)
	}
	if c.Losses, err = trimmedLosses(c.Losses); err != nil {
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

// trimmed returns a copy of a position, without its token if that is too large, unreadable, or
// beyond the budget.
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

// Merge returns the result of saving c over the stored checkpoint (nil if there is none): the later
// position of each partition, and the snapshots of the later one, with those that have begun since.
// A higher generation, which occurs only after a store was restored, replaces the stored
// checkpoint. If the number of partitions has changed, the stored one counts with its earliest
// position. changed is false if the result equals the stored checkpoint. The error is ErrRewound or
// ErrFenced.
func Merge(stored *Checkpoint, c Checkpoint) (merged Checkpoint, changed bool, err error) {
	if stored == nil {
		if c.Position.IsZero() {
			return c, false, fmt.Errorf("%s: %w", c.Key, ErrNone)
		}
		if c.Shared { // its session may have begun before this partition came to it
			c.Losses = slices.DeleteFunc(slices.Clone(c.Losses), func(g Gap) bool { return g.To.Time.Compare(c.Began.At) < 0 })
		}
		return c, true, nil
	}
	switch {
	case !c.Shared && c.Claim.Number < stored.Claim.Number, c.Shared && c.Epoch.Compare(stored.Epoch) < 0,
		!c.Shared && c.Claim.Number == stored.Claim.Number && c.Claim.Process != stored.Claim.Process: // two claims with one number, because a backup was restored
		return *stored, false, fmt.Errorf("%s: %w", c.Key, ErrFenced)
	case c.Generation < stored.Generation:
		return *stored, false, fmt.Errorf("%s: %w", c.Key, ErrRewound)
	}
	if c.Began == (Beginning{}) { // a node of an earlier version
		c.Began = stored.Began
	}
	newer := c.Generation > stored.Generation
	losses := c.Losses
	changed = newer || c.Began != stored.Began || c.Claim.Number > stored.Claim.Number || c.Partitions != stored.Partitions
	before := stored.Recounted(c.Partitions)
	if newer && !c.Position.IsZero() {
		c.lose(before, losses)
		return c, true, nil
	}
	merged = c
	advanced := merged.advance(before, c, newer)
	changed = merged.lose(before, losses) || changed || advanced
	merged.Coverage, merged.Lapse = before.Coverage, before.Lapse
	if advanced {
		merged.cover(before, c)
	}
	switch {
	case !newer && before.Earliest().After(c.Earliest()):
		merged.Snapshots = withOwed(before.Snapshots, c)
	case c.Position.IsZero():
		merged.Snapshots = partialSnapshots(before.Snapshots, c)
	}
	changed = changed || !slices.EqualFunc(before.Snapshots, merged.Snapshots, sameProgress)
	return merged, changed, nil
}

// advance sets the positions to the later ones of before and saved, and reports whether any is
// later than before's. In a newer generation, those that saved has for a partition count.
func (c *Checkpoint) advance(before, saved Checkpoint, newer bool) (advanced bool) {
	in := func(p change.Partition) change.Position {
		mine, told := saved.Positions[p]
		switch {
		case newer && told:
			return mine
		case told, !saved.Position.IsZero():
			return change.Later(before.In(p), saved.In(p))
		}
		return before.In(p)
	}
	c.Position = change.Later(before.Position, saved.Position)
	c.Positions = nil
	advanced = c.Position.After(before.Position)
	for _, from := range []map[change.Partition]change.Position{before.Positions, saved.Positions} {
		for p := range from {
			at := in(p)
			advanced = advanced || at.After(before.In(p))
			if equal(at, c.Position) {
				continue
			}
			if c.Positions == nil {
				c.Positions = make(map[change.Partition]change.Position)
			}
			c.Positions[p] = at
		}
	}
	c.settle()
	return advanced || c.Position.After(before.Position)
}

// settle makes the position that of some partition: if every partition differs, it becomes the
// earliest, because otherwise it would never advance.
func (c *Checkpoint) settle() {
	if len(c.Positions) < c.Partitions {
		return
	}
	c.Position = change.Position{}
	c.Position = c.Earliest()
	maps.DeleteFunc(c.Positions, func(_ change.Partition, at change.Position) bool { return equal(at, c.Position) })
	if len(c.Positions) == 0 {
		c.Positions = nil
	}
}

// Claimed returns the claim of a process that requests the name of the stored checkpoint (nil if
// there is none). now is the node's clock. It returns a *TakenError if the current process started
// later, or if the requesting process has no ID, and an error that wraps ErrForeign if it is of
// another identity.
func (c Claim) Claimed(stored *Checkpoint, now time.Time) (Claim, error) {
	if c.Started.After(now) || c.Started.IsZero() {
		c.Started = now
	}
	c.Started = c.Started.Round(0).UTC()
	alone := c.Alone
	c.Alone = false
	if stored == nil {
		c.Number = 1
		return c, nil
	}
	had := stored.Claim
	switch {
	case had.By != "" && c.By != "" && had.By != c.By:
		return Claim{}, fmt.Errorf("subscriber %q is %s: %w", stored.Subscriber, had, ErrForeign)
	case had.Process == c.Process:
		c.Number, c.Started = had.Number, had.Started
		if alone {
			c.Number++
		}
	case had.Started.After(c.Started):
		return Claim{}, &TakenError{Subscriber: stored.Subscriber, Claim: had}
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
	return fmt.Sprintf("subscriber %q is %s, which is later", e.Subscriber, e.Claim)
}

// Unwrap returns ErrFenced.
func (e *TakenError) Unwrap() error { return ErrFenced }

// Rewound returns the checkpoint after a rewind to the position: each partition moves there unless
// it is earlier. The error is ErrForward if all partitions are earlier.
func (c Checkpoint) Rewound(to change.Position, incarnation uint64, by, why string) (Checkpoint, error) {
	switch {
	case to.IsZero():
		return Checkpoint{}, errors.New("a rewind to no position")
	case to.After(c.Latest()):
		return Checkpoint{}, fmt.Errorf("%s from %s to %s: %w", c.Key, c.Latest(), to, ErrForward)
	}
	elsewhere := c.Positions
	c.Position = earlier(c.Position, to)
	c.Positions = nil
	for p, at := range elsewhere {
		if at = earlier(at, to); !equal(at, c.Position) {
			if c.Positions == nil {
				c.Positions = make(map[change.Partition]change.Position)
			}
			c.Positions[p] = at
		}
	}
	if c.Lapse != nil && to.Time.Compare(c.Lapse.At) <= 0 { // it is read again
		c.Coverage = &c.Lapse.Coverage
		c.Lapse = nil
	}
	c.Generation++
	c.Epoch = change.Epoch{Incarnation: incarnation}
	c.At = time.Now().UTC()
	c.By = by
	c.Reason = ReasonRewind
	c.Note = why
	return c.Trimmed()
}

// Repaired returns what takes the place of a corrupt checkpoint whose history has c as its newest
// entry: c itself, moved back to the position if it is later. Its losses are not known, and
// unfinished snapshots are only those of the entry.
func (c Checkpoint) Repaired(to change.Position, incarnation uint64, by, why string) (Checkpoint, error) {
	return c.Rewound(earlier(to, c.Latest()), incarnation, by, why)
}

// Imported returns the checkpoint that an import writes over the stored one (nil if there is none):
// with the next generation, the stored claim, and an epoch that fences no owner of the incarnation.
// Its beginning is the caller's to draw.
func (c Checkpoint) Imported(stored *Checkpoint, o Origin) (Checkpoint, error) {
	if c.Shared && c.Partitions != o.Partitions {
		return Checkpoint{}, fmt.Errorf("%s of %d partitions, there are %d", c.Key, c.Partitions, o.Partitions)
	}
	if c.Position.IsZero() {
		return Checkpoint{}, errors.New("a checkpoint without a position")
	}
	if stored != nil {
		c.Generation = max(c.Generation, stored.Generation+1)
		c.Claim = stored.Claim
		c.Losses = slices.Concat(stored.Losses, slices.DeleteFunc(slices.Clone(c.Losses), func(g Gap) bool { return slices.ContainsFunc(stored.Losses, g.within) }))
	}
	c.Epoch = change.Epoch{Incarnation: o.Incarnation}
	return c.Trimmed()
}

// earlier returns the earlier of two positions.
func earlier(p, q change.Position) change.Position {
	if p.After(q) {
		return q
	}
	return p
}

// Latest returns the latest position of all partitions.
func (c Checkpoint) Latest() change.Position {
	latest := c.Position
	for _, at := range c.Positions {
		latest = change.Later(latest, at)
	}
	return latest
}

// Sort sorts checkpoints by subscriber and partition.
func Sort(all []Checkpoint) {
	slices.SortFunc(all, func(a, b Checkpoint) int {
		return cmp.Or(cmp.Compare(a.Subscriber, b.Subscriber), cmp.Compare(a.Partition, b.Partition))
	})
}
