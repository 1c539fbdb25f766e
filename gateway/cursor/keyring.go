package cursor

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint/key"
)

// maxSeals is how many cursors one salt seals.
const maxSeals = 1 << 31

// Config says what cursors are bound to.
type Config struct {
	// Cluster and Partitions are the id of the cluster, as its origin has it, and N. Required.
	Cluster    string
	Partitions int
	// Fingerprint names what the log's streams are opened with. The token of an event is good for streams of the same one only: a
	// cursor that was made with another opens as the position before everything of its time.
	Fingerprint string
}

// A Keyring seals and opens cursors. It seals nothing, and opens nothing, before it is given keys.
type Keyring struct {
	binding     []byte // N, cluster
	fingerprint [fingerprintSize]byte
	maxSeals    uint64

	turning sync.Mutex // one turns, the others go on
	ring    atomic.Pointer[ring]
	opened  atomic.Pointer[derived] // the last key that a cursor of another Keyring was opened with: many of one come in a row
}

// A ring is the keys of a moment.
type ring struct {
	keys key.Set
	seal *derived // nil without keys
}

// A derived is a key that cursors are sealed with.
type derived struct {
	serial uint32
	salt   [saltSize]byte
	secret key.Secret // that it is derived from
	aead   cipher.AEAD
	seals  atomic.Uint64
}

// NewKeyring makes a Keyring without keys.
func NewKeyring(cfg Config) *Keyring {
	k := &Keyring{binding: binary.BigEndian.AppendUint32(nil, uint32(cfg.Partitions)), maxSeals: maxSeals}
	k.binding = append(k.binding, cfg.Cluster...)
	sum := sha256.Sum256([]byte(cfg.Fingerprint))
	copy(k.fingerprint[:], sum[:])
	k.ring.Store(&ring{})
	return k
}

// Turn replaces the keys. The Keyring keeps the slice.
func (k *Keyring) Turn(keys key.Set) error {
	k.turning.Lock()
	defer k.turning.Unlock()
	next := &ring{keys: keys, seal: k.ring.Load().seal}
	switch last := keys.Last(); {
	case len(keys) == 0:
		next.seal = nil
	case next.seal == nil || next.seal.serial != last.Serial || next.seal.secret != last.Secret:
		var err error
		if next.seal, err = fresh(last); err != nil {
			return err
		}
	}
	k.ring.Store(next)
	return nil
}

// sealer returns the key to seal one more cursor with, nil where there is none.
func (k *Keyring) sealer() *derived {
	d := k.ring.Load().seal
	if d == nil || d.seals.Add(1) <= k.maxSeals {
		return d
	}
	k.turning.Lock()
	defer k.turning.Unlock()
	now := k.ring.Load()
	if now.seal == nil || now.seal.seals.Add(1) <= k.maxSeals {
		return now.seal // somebody else has been here
	}
	next, err := fresh(now.keys.Last())
	if err != nil {
		return nil
	}
	next.seals.Store(1)
	k.ring.Store(&ring{keys: now.keys, seal: next})
	return next
}

// Lacks reports whether a cursor was sealed with a key that came after all that the Keyring has: newer keys may open it.
func (k *Keyring) Lacks(sealed []byte) bool {
	return len(sealed) >= overhead && sealed[0] == version && serialOf(sealed) > k.ring.Load().keys.Last().Serial
}

// opener returns the key that a cursor was sealed with.
func (r *ring) opener(k *Keyring, sealed []byte) (*derived, error) {
	serial, salt := serialOf(sealed), [saltSize]byte(sealed[1+serialSize:])
	at := -1
	for i := range r.keys {
		if r.keys[i].Serial == serial {
			at = i
		}
	}
	switch last := r.keys.Last().Serial; {
	case at < 0 && serial > last:
		return nil, errUnknownKey
	case at < 0:
		return nil, fmt.Errorf("%w %d, the last one is %d", errKeyGone, serial, last)
	}
	secret := r.keys[at].Secret
	for _, d := range []*derived{r.seal, k.opened.Load()} {
		if d != nil && d.serial == serial && d.salt == salt && d.secret == secret {
			return d, nil
		}
	}
	d, err := derive(r.keys[at], salt)
	if err == nil {
		k.opened.Store(d)
	}
	return d, err
}

// fresh derives a key with a salt of its own.
func fresh(from key.Key) (*derived, error) {
	var salt [saltSize]byte
	_, _ = rand.Read(salt[:]) // never fails
	return derive(from, salt)
}

// derive derives a key from a secret and a salt.
func derive(from key.Key, salt [saltSize]byte) (*derived, error) {
	material, err := hkdf.Key(sha256.New, from.Secret[:], salt[:], "streamer cursor", 32)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	block, err := aes.NewCipher(material)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	return &derived{serial: from.Serial, salt: salt, secret: from.Secret, aead: aead}, nil
}

// serialOf returns the serial that a cursor of full length names.
func serialOf(sealed []byte) uint32 { return binary.BigEndian.Uint32(sealed[1:]) }

// context appends what is authenticated with a cursor and not in it, behind the cursor's front.
func (k *Keyring) context(b, front []byte, p change.Partition) []byte {
	b = append(b, front...)
	b = binary.BigEndian.AppendUint32(b, uint32(p))
	return append(b, k.binding...)
}
