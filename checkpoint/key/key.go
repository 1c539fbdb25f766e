package key

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// How keys follow each other. There are never more than MaxKeys.
const (
	Rotation = 24 * time.Hour
	Life     = 72 * time.Hour
	MaxKeys  = 16
)

// ErrMoved says that the keys are not those that a key was to follow: another node has rotated them.
var ErrMoved = errors.New("the keys have changed")

// A Secret is the material of a key.
type Secret [32]byte

const hidden = "(hidden)"

// Format implements [fmt.Formatter].
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText implements encoding.TextMarshaler.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// A Key seals what leaves the cluster and comes back.
type Key struct {
	// Serial numbers the keys of a cluster, from 1.
	Serial uint32
	Secret Secret
	// Made is when, by MongoDB's clock.
	Made time.Time
}

// A Set is the keys of one cluster in the order of their serials.
type Set []Key

// Last returns the key that seals, the zero Key where there is none.
func (s Set) Last() Key {
	if len(s) == 0 {
		return Key{}
	}
	return s[len(s)-1]
}

// Next makes the key that follows.
func (s Set) Next(now time.Time) Key {
	next := Key{Serial: s.Last().Serial + 1, Made: now.UTC()}
	_, _ = rand.Read(next.Secret[:]) // never fails
	return next
}

// Due reports whether a key is to follow.
func (s Set) Due(now time.Time) bool { return len(s) == 0 || now.Sub(s.Last().Made) >= Rotation }

// Add returns the keys with one that follows them, and without those that are too old beside it. A key that is the last one already
// changes nothing, so that one whose adding was not answered may be added again; any other is ErrMoved.
func (s Set) Add(next Key) (keys Set, changed bool, err error) {
	last := s.Last()
	switch {
	case next.Serial == last.Serial && next.Secret == last.Secret && next.Serial != 0:
		return s, false, nil
	case next.Serial != last.Serial+1:
		return nil, false, fmt.Errorf("key %d behind key %d: %w", next.Serial, last.Serial, ErrMoved)
	}
	keys = slices.DeleteFunc(slices.Clone(s), func(old Key) bool { return next.Made.Sub(old.Made) >= Life })
	return append(keys[max(0, len(keys)+1-MaxKeys):], next), true, nil
}

// A Keeper keeps the keys of one cluster.
type Keeper interface {
	// Keys returns the keys; that there are none is no error.
	Keys(ctx context.Context) (Set, error)
	// AddKey adds a key as [Set.Add] says, durably when it returns nil: of several nodes that add one at once, one succeeds and the
	// others get ErrMoved.
	AddKey(ctx context.Context, key Key) error
}
