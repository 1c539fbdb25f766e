package row

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mongostream/streamer/change"
)

const (
	// MaxRows is how many rows are kept: of more, those that were seen longest ago make room.
	MaxRows = 10_000
	// Life is for how long at least a row is kept after it was saved, by the clock of the store: no two machines' clocks are compared.
	Life = 24 * time.Hour
	// MaxName is how many bytes the names of a gateway and of its process have at most.
	MaxName = 256
	// MaxBytes is how large the stored form of a row is at most.
	MaxBytes = 1152 << 10

	// maxTokenBytes is the largest resume token that is kept, as in a mark; maxTokens bounds those of one row together.
	maxTokenBytes, maxTokens = 16 << 10, 256 << 10
)

// ErrSuperseded says that a process of the gateway that started later has saved its row.
var ErrSuperseded = errors.New("superseded: a newer process of the gateway has saved its row")

var errNoSuch = errors.New("there is no such partition")

// A Row is what is remembered of a gateway.
type Row struct {
	// Gateway is its name: 1 to MaxName bytes of UTF-8, otherwise arbitrary.
	Gateway string
	// Process names the process that the gateway was when it was seen, at most MaxName bytes of UTF-8, and Started is when that one
	// started, by its own clock.
	Process string
	Started time.Time
	// Partitions is the number of partitions that the positions are of, which need not be the store's.
	Partitions int
	// Base is how far the gateway has acknowledged all partitions that are not in Positions. It is never zero.
	Base change.Position
	// Positions is how far it has acknowledged the others, before Base or behind it. A partition that stands at Base need not be in it,
	// and is not when the row comes back.
	Positions map[change.Partition]change.Position
	// SeenAt is when the row was made, by the clock of the node that made it; informative only.
	SeenAt time.Time
	// Age is for how long at least the row has not been saved, by the clock of the store, which may tell it to an hour only. Rows fills it in.
	Age time.Duration
}

// A Keeper keeps the rows of gateways. All methods may block on the network until the context ends, may be called from several
// goroutines, and keep nothing of what they are given.
type Keeper interface {
	// SaveRow puts a row, trimmed, into the place of the gateway's last one. ErrSuperseded says that the one that stands is of a process
	// that started later. One that cannot be read is left as it is, and is the error. Any other error says that it is unknown whether
	// the row was written. Saving again is always safe.
	SaveRow(ctx context.Context, r Row) error
	// Row returns the row of a gateway; ok is false where there is none, or none that was saved within Life.
	Row(ctx context.Context, gateway string) (row Row, ok bool, err error)
	// Rows returns the rows that were saved within Life in the order of their gateways' names. With an error
	// that says which cannot be read, it returns the others.
	Rows(ctx context.Context) ([]Row, error)
	// DeleteRow removes the row of a gateway, readable or not; that there is none is no error.
	DeleteRow(ctx context.Context, gateway string) error
}

// Trimmed returns the row as stores keep it, which aliases nothing, or says what is wrong with it. A token that is too large, that
// nobody could read back, or that is one too many is replaced by its time.
func (r Row) Trimmed() (Row, error) {
	switch {
	case r.Gateway == "" || len(r.Gateway) > MaxName || !utf8.ValidString(r.Gateway):
		return Row{}, fmt.Errorf("a row of a gateway named %q: it must have 1 to %d bytes of UTF-8", start(r.Gateway), MaxName)
	case len(r.Process) > MaxName || !utf8.ValidString(r.Process):
		return Row{}, fmt.Errorf("a row of a process named %q: it must have at most %d bytes of UTF-8", start(r.Process), MaxName)
	case r.Partitions < 1 || r.Partitions > change.MaxPartitions:
		return Row{}, fmt.Errorf("a row of %d partitions", r.Partitions)
	}
	base, err := trimmed(r.Base)
	if err != nil {
		return Row{}, err
	}
	differing, budget := r.Positions, maxTokens
	r.Base, r.Positions = within(base, &budget), nil
	r.Started, r.SeenAt, r.Age = r.Started.Round(0).UTC(), r.SeenAt.Round(0).UTC(), 0
	for _, p := range slices.Sorted(maps.Keys(differing)) {
		position, err := trimmed(differing[p])
		if err != nil || int(p) >= r.Partitions {
			return Row{}, fmt.Errorf("partition %d of %d: %w", p, r.Partitions, cmp.Or(err, errNoSuch))
		}
		if equal(position, base) {
			continue
		}
		if position = within(position, &budget); equal(position, base) {
			continue
		}
		if r.Positions == nil {
			r.Positions = make(map[change.Partition]change.Position)
		}
		r.Positions[p] = position
	}
	return r, nil
}

// trimmed is what a mark keeps of a position.
func trimmed(p change.Position) (change.Position, error) {
	parsed, err := change.ParseToken(p.Token)
	switch {
	case err != nil || len(p.Token) > maxTokenBytes:
		p = change.At(p.Time)
	case parsed.Time != p.Time:
		return change.Position{}, fmt.Errorf("a position at %s with a token of %s", p, parsed)
	}
	if p.IsZero() {
		return change.Position{}, errors.New("a row without a position")
	}
	return p, nil
}

// within returns a copy of the position, without its token where the budget has no room for it.
func within(p change.Position, budget *int) change.Position {
	if len(p.Token) > *budget {
		return change.At(p.Time)
	}
	*budget -= len(p.Token)
	return p.Clone()
}

func equal(p, q change.Position) bool { return p.Time == q.Time && bytes.Equal(p.Token, q.Token) }

// start is as much of a name as an error shows.
func start(name string) string { return name[:min(len(name), MaxName)] }

// At returns how far the gateway has acknowledged a partition.
func (r Row) At(p change.Partition) change.Position {
	if position, differs := r.Positions[p]; differs {
		return position
	}
	return r.Base
}

// Over returns ErrSuperseded unless the row may take the place of the one that stands, which was saved within Life.
func (r Row) Over(stands Row) error {
	if r.Process == stands.Process || !stands.Started.After(r.Started) {
		return nil
	}
	return fmt.Errorf("process %q started at %s, %q at %s: %w",
		r.Process, r.Started.Format(time.RFC3339Nano), stands.Process, stands.Started.Format(time.RFC3339Nano), ErrSuperseded)
}

// Sort puts rows into the order of their gateways' names.
func Sort(rows []Row) {
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.Gateway, b.Gateway) })
}
