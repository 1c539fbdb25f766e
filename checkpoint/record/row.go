package record

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// A row is a checkpoint.Row as it is stored.
type row struct {
	Version    int                           `json:"v"`
	Partitions int                           `json:"n"`
	Gateway    string                        `json:"gateway"`
	Process    string                        `json:"process"`
	Started    time.Time                     `json:"started"`
	Base       position                      `json:"base"`
	Positions  map[change.Partition]position `json:"positions,omitempty"`
	SeenAt     time.Time                     `json:"seen"`
}

// EncodeRow returns the stored form of a row, which it trims, so that none is larger than row.MaxBytes. One that [DecodeRow] would not
// read back is an error.
func EncodeRow(r checkpoint.Row) ([]byte, error) {
	r, err := r.Trimmed()
	if err != nil {
		return nil, fmt.Errorf("encode row: %w", err)
	}
	s := row{
		Version:    version,
		Partitions: r.Partitions,
		Gateway:    r.Gateway,
		Process:    r.Process,
		Started:    r.Started,
		Base:       positionOf(r.Base),
		SeenAt:     r.SeenAt,
	}
	for p, at := range r.Positions {
		if s.Positions == nil {
			s.Positions = make(map[change.Partition]position, len(r.Positions))
		}
		s.Positions[p] = positionOf(at)
	}
	if _, err := s.parse(); err != nil {
		return nil, fmt.Errorf("encode row of gateway %q: %w", r.Gateway, err)
	}
	value, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode row of gateway %q: %w", r.Gateway, err)
	}
	return value, nil
}

// DecodeRow reads the row that is stored under key, which must be the one that keyOf gives its gateway. It may have been made for any
// number of partitions.
func DecodeRow(key string, value []byte, keyOf func(gateway string) string) (checkpoint.Row, error) {
	var s row
	if err := decode(key, value, &s); err != nil {
		return checkpoint.Row{}, err
	}
	r, err := s.parse()
	if err == nil && keyOf(r.Gateway) != key {
		err = fmt.Errorf("it is of gateway %q", r.Gateway)
	}
	if err != nil {
		return checkpoint.Row{}, corrupt(key, err)
	}
	return r, nil
}

// parse returns the row if it makes sense.
func (s *row) parse() (r checkpoint.Row, err error) {
	r = checkpoint.Row{Gateway: s.Gateway, Process: s.Process, Started: s.Started, Partitions: s.Partitions, SeenAt: s.SeenAt}
	if r.Base, err = s.Base.parse(); err != nil {
		return checkpoint.Row{}, err
	}
	for p, at := range s.Positions {
		if r.Positions == nil {
			r.Positions = make(map[change.Partition]change.Position, len(s.Positions))
		}
		if r.Positions[p], err = at.parse(); err != nil {
			return checkpoint.Row{}, fmt.Errorf("partition %d: %w", p, err)
		}
	}
	return r.Trimmed()
}
