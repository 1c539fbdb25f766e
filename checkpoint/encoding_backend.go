package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
)

// A backend is the stored form of a checkpoint.Backend. It is stored separately from the origin, so
// that its completion does not affect comparisons of the origin.
type backend struct {
	Version int    `json:"v"`
	Store   string `json:"store,omitempty"`
	Etcd    string `json:"etcd,omitempty"`
	Prefix  string `json:"prefix,omitempty"`
	ID      string `json:"id,omitempty"`
}

// EncodeBackend returns the stored form of a backend, nil for an unknown one.
func EncodeBackend(b Backend) ([]byte, error) {
	if b == (Backend{}) {
		return nil, nil
	}
	value, err := json.Marshal(backend{Version: version, Store: b.Store, Etcd: b.Etcd, Prefix: b.Prefix, ID: b.ID})
	if err != nil {
		return nil, fmt.Errorf("encode backend: %w", err)
	}
	return value, nil
}

// DecodeBackend reads the backend that is stored under key; without a value the backend is unknown.
func DecodeBackend(key string, value []byte) (Backend, error) {
	if len(value) == 0 {
		return Backend{}, nil
	}
	var s backend
	if err := decode(key, value, version, &s); err != nil {
		return Backend{}, err
	}
	if s.Store != "" && s.Store != BackendEtcd && s.Store != BackendMongo {
		return Backend{}, corrupt(key, errors.New("it names no store"))
	}
	return Backend{Store: s.Store, Etcd: s.Etcd, Prefix: s.Prefix, ID: s.ID}, nil
}
