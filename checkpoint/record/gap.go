package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// A gap is a checkpoint.Gap as it is stored.
type gap struct {
	Version     int               `json:"v"`
	Partitions  int               `json:"n"`
	Partition   change.Partition  `json:"partition"`
	From        position          `json:"from"`
	To          position          `json:"to"`
	Reason      string            `json:"reason"`
	Namespaces  []string          `json:"namespaces,omitempty"`
	Fingerprint string            `json:"fingerprint"`
	Epoch       string            `json:"epoch"`
	Found       time.Time         `json:"found"`
	By          string            `json:"by"`
	Rescan      map[string]rescan `json:"rescan,omitempty"`
}

// A rescan is a checkpoint.RescanState as it is stored.
type rescan struct {
	After []byte `json:"after,omitempty"` // base64
	Done  bool   `json:"done"`
}

// EncodeGap returns the stored form of an entry of the gap log. One that [DecodeGap] would not read back is an error.
func EncodeGap(g checkpoint.Gap, partitions int) ([]byte, error) {
	s := gap{
		Version:     version,
		Partitions:  cmp.Or(g.Of, partitions),
		Partition:   g.Partition,
		From:        positionOf(g.From),
		To:          positionOf(g.To),
		Reason:      g.Reason,
		Namespaces:  g.Namespaces,
		Fingerprint: g.Fingerprint,
		Epoch:       g.Epoch.String(),
		Found:       g.Found.UTC(),
		By:          g.By,
	}
	for namespace, state := range g.Rescan {
		if s.Rescan == nil {
			s.Rescan = make(map[string]rescan, len(g.Rescan))
		}
		s.Rescan[namespace] = rescan{After: state.After, Done: state.Done}
	}
	if _, err := s.parse(); err != nil {
		return nil, fmt.Errorf("encode gap of partition %d: %w", g.Partition, err)
	}
	value, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode gap of partition %d: %w", g.Partition, err)
	}
	return value, nil
}

// DecodeGap reads the entry of the gap log that is stored under key. One that was made for another number of partitions than the given one
// says so; 0 is any.
func DecodeGap(key string, partitions int, value []byte) (checkpoint.Gap, error) {
	var s gap
	if err := decode(key, value, &s); err != nil {
		return checkpoint.Gap{}, err
	}
	if err := checkPartitions(key, s.Partitions, 0); err != nil {
		return checkpoint.Gap{}, err
	}
	g, err := s.parse()
	if err != nil {
		return checkpoint.Gap{}, corrupt(key, err)
	}
	if partitions != 0 && s.Partitions != partitions {
		g.Of = s.Partitions
	}
	return g, nil
}

// parse returns the gap if it makes sense.
func (s *gap) parse() (g checkpoint.Gap, err error) {
	if int(s.Partition) >= s.Partitions {
		return g, fmt.Errorf("partition %d of %d", s.Partition, s.Partitions)
	}
	if s.Reason == "" {
		return g, errors.New("it has no reason")
	}
	g = checkpoint.Gap{
		Partition: s.Partition, Reason: s.Reason, Namespaces: s.Namespaces, Fingerprint: s.Fingerprint, Found: s.Found.UTC(), By: s.By,
	}
	if g.From, err = s.From.bound(); err != nil {
		return checkpoint.Gap{}, fmt.Errorf("where it begins: %w", err)
	}
	if g.To, err = s.To.bound(); err != nil {
		return checkpoint.Gap{}, fmt.Errorf("where it ends: %w", err)
	}
	if g.Epoch, err = parseEpoch(s.Epoch); err != nil {
		return checkpoint.Gap{}, err
	}
	for namespace, state := range s.Rescan {
		if g.Rescan == nil {
			g.Rescan = make(map[string]checkpoint.RescanState, len(s.Rescan))
		}
		g.Rescan[namespace] = checkpoint.RescanState{After: state.After, Done: state.Done}
	}
	return g, nil
}
