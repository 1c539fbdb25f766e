package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/checkpoint/key"
)

// A keySet is a key.Set as it is stored.
type keySet struct {
	Version int         `json:"v"`
	Keys    []storedKey `json:"keys"`
}

type storedKey struct {
	Serial uint32    `json:"serial"`
	Secret []byte    `json:"secret"` // base64
	Made   time.Time `json:"made"`
}

// EncodeKeys returns the stored form of keys.
func EncodeKeys(all key.Set) ([]byte, error) {
	s := keySet{Version: version, Keys: make([]storedKey, len(all))}
	for i, k := range all {
		s.Keys[i] = storedKey{Serial: k.Serial, Secret: k.Secret[:], Made: k.Made.UTC()}
	}
	if _, err := s.parse(); err != nil {
		return nil, fmt.Errorf("encode keys: %w", err)
	}
	value, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode keys: %w", err)
	}
	return value, nil
}

// DecodeKeys reads the keys that are stored under name. Errors show nothing of what is stored.
func DecodeKeys(name string, value []byte) (key.Set, error) {
	var s keySet
	if err := decode(name, value, &s); err != nil {
		return nil, err
	}
	all, err := s.parse()
	if err != nil {
		return nil, corrupt(name, err)
	}
	return all, nil
}

// parse returns the keys if they make sense.
func (s *keySet) parse() (key.Set, error) {
	if len(s.Keys) == 0 || len(s.Keys) > key.MaxKeys {
		return nil, fmt.Errorf("it has %d keys", len(s.Keys))
	}
	all := make(key.Set, len(s.Keys))
	last := uint32(0)
	for i, k := range s.Keys {
		switch {
		case k.Serial <= last:
			return nil, errors.New("its keys are not in order")
		case len(k.Secret) != len(key.Secret{}):
			return nil, fmt.Errorf("the secret of key %d has %d bytes", k.Serial, len(k.Secret))
		case k.Made.IsZero():
			return nil, fmt.Errorf("key %d has no date", k.Serial)
		}
		all[i], last = key.Key{Serial: k.Serial, Secret: key.Secret(k.Secret), Made: k.Made.UTC()}, k.Serial
	}
	return all, nil
}
