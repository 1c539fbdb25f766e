package cursor

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
)

// The form of a cursor. Another form takes another version.
const (
	version = 1

	serialSize      = 4
	saltSize        = 16
	frontSize       = 1 + serialSize + saltSize
	nonceSize       = 12
	fingerprintSize = 8
	fieldsSize      = fingerprintSize + 8 + 4
	tagSize         = 16
	overhead        = frontSize + nonceSize + tagSize
	block           = 64
)

// MaxToken is the largest resume token that is sealed, and MaxSize the largest cursor.
const (
	MaxToken = 16 << 10
	MaxSize  = overhead + (fieldsSize+MaxToken+block-1)/block*block
)

var (
	errMalformed  = errors.New("it is none, or of another version")
	errForged     = errors.New("it was not made here, for this partition, or has been changed")
	errUnknownKey = errors.New("it was sealed with a key that this cluster has not had")
	errKeyGone    = errors.New("it was sealed with key")
)

// Seal returns a position as a cursor of a partition: nil where there is no key yet, nothing to seal, or a token larger than MaxToken.
func (k *Keyring) Seal(p change.Partition, at change.Position) []byte {
	d := k.sealer()
	if d == nil || at.IsZero() || len(at.Token) > MaxToken {
		return nil
	}
	length := (fieldsSize + len(at.Token) + block - 1) / block * block
	size := overhead + length
	b := make([]byte, frontSize+nonceSize, size+frontSize+4+len(k.binding)) // one piece of memory, with what is authenticated behind it
	b[0] = version
	binary.BigEndian.PutUint32(b[1:], d.serial)
	copy(b[1+serialSize:], d.salt[:])
	nonce := b[frontSize : frontSize+nonceSize]
	_, _ = rand.Read(nonce) // never fails

	plain := b[len(b) : len(b)+length] // zero so far
	copy(plain, k.fingerprint[:])
	binary.BigEndian.PutUint32(plain[fingerprintSize:], at.Time.T)
	binary.BigEndian.PutUint32(plain[fingerprintSize+4:], at.Time.I)
	binary.BigEndian.PutUint32(plain[fingerprintSize+8:], uint32(len(at.Token)))
	copy(plain[fieldsSize:], at.Token)
	bound := k.context(b[size:size], b[:frontSize], p)
	return d.aead.Seal(b[:len(b):size], nonce, plain, bound)
}

// Open returns the position that a cursor of a partition was made of. It aliases nothing. Errors are the faults SessionBadCursor and
// SessionOldCursor.
func (k *Keyring) Open(p change.Partition, sealed []byte) (change.Position, error) {
	at, err := k.open(p, sealed)
	switch {
	case errors.Is(err, errKeyGone):
		return at, fault.Newf(fault.SessionOldCursor, "the cursor of partition %d cannot be opened: %w", p, err)
	case err != nil:
		return at, fault.Newf(fault.SessionBadCursor, "the cursor of partition %d cannot be opened: %w", p, err)
	}
	return at, nil
}

func (k *Keyring) open(p change.Partition, sealed []byte) (change.Position, error) {
	length := len(sealed) - overhead
	if length < block || length%block != 0 || len(sealed) > MaxSize || sealed[0] != version {
		return change.Position{}, errMalformed
	}
	d, err := k.ring.Load().opener(k, sealed)
	if err != nil {
		return change.Position{}, err
	}
	front, nonce := sealed[:frontSize], sealed[frontSize:frontSize+nonceSize]
	plain, err := d.aead.Open(nil, nonce, sealed[frontSize+nonceSize:], k.context(nil, front, p))
	if err != nil {
		return change.Position{}, errForged
	}
	return k.read(plain)
}

// read reads what was sealed.
func (k *Keyring) read(plain []byte) (change.Position, error) {
	at := change.Position{Time: change.Timestamp{
		T: binary.BigEndian.Uint32(plain[fingerprintSize:]), I: binary.BigEndian.Uint32(plain[fingerprintSize+4:]),
	}}
	n := binary.BigEndian.Uint32(plain[fingerprintSize+8:])
	if uint64(n) > uint64(len(plain)-fieldsSize) {
		return change.Position{}, fmt.Errorf("it has a token of %d bytes", n)
	}
	if n == 0 {
		return at, nil
	}
	at.Token = plain[fieldsSize : fieldsSize+n : fieldsSize+n]
	if [fingerprintSize]byte(plain) != k.fingerprint && !at.IsProgress() {
		return change.At(at.Time), nil
	}
	return at, nil
}
