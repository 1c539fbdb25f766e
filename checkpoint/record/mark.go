package record

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// A mark is a checkpoint.Mark as it is stored.
type mark struct {
	Version     int               `json:"v"`
	Partitions  int               `json:"n"`
	Position    position          `json:"position"`
	Generation  uint64            `json:"generation,omitempty"`
	Fingerprint string            `json:"fingerprint"`
	Epoch       string            `json:"epoch"`
	At          time.Time         `json:"at"`
	By          string            `json:"by"`
	Reason      checkpoint.Reason `json:"reason"`
	Note        string            `json:"note,omitempty"`
	History     *trail            `json:"history,omitempty"`
}

// A trail is a checkpoint.Trail as it is stored.
type trail struct {
	Entries uint64    `json:"entries"`
	Last    time.Time `json:"last"`
}

// EncodeMark returns the stored form of a mark among the given number of partitions, with its trail. A mark that [DecodeMark]
// would not read back is an error.
func EncodeMark(m checkpoint.Mark, t checkpoint.Trail, partitions int) ([]byte, error) {
	s := mark{
		Version:     version,
		Partitions:  partitions,
		Position:    positionOf(m.Position),
		Generation:  m.Generation,
		Fingerprint: m.Fingerprint,
		Epoch:       m.Epoch.String(),
		At:          m.At.UTC(),
		By:          m.By,
		Reason:      m.Reason,
		Note:        m.Note,
	}
	if t.Entries > 0 {
		s.History = &trail{Entries: t.Entries, Last: t.Last.UTC()}
	}
	if _, _, err := s.parse(m.Partition); err != nil {
		return nil, fmt.Errorf("encode mark of partition %d: %w", m.Partition, err)
	}
	value, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode mark of partition %d: %w", m.Partition, err)
	}
	return value, nil
}

// DecodeMark reads the mark of a partition that is stored under key, and its trail. It must have been made for the given number of
// partitions, of which 0 means any.
func DecodeMark(key string, p change.Partition, partitions int, value []byte) (checkpoint.Mark, checkpoint.Trail, error) {
	var s mark
	if err := decode(key, value, &s); err != nil {
		return checkpoint.Mark{}, checkpoint.Trail{}, err
	}
	if err := checkPartitions(key, s.Partitions, partitions); err != nil {
		return checkpoint.Mark{}, checkpoint.Trail{}, err
	}
	m, t, err := s.parse(p)
	if err != nil {
		return checkpoint.Mark{}, checkpoint.Trail{}, corrupt(key, err)
	}
	return m, t, nil
}

// DecodeEntry is DecodeMark for an entry of a history, which may have been made for another number of partitions, and says so then.
func DecodeEntry(key string, p change.Partition, partitions int, value []byte) (checkpoint.Mark, checkpoint.Trail, error) {
	m, t, err := DecodeMark(key, p, 0, value)
	var made struct {
		Partitions int `json:"n"`
	}
	if err == nil && json.Unmarshal(value, &made) == nil && made.Partitions != partitions && partitions != 0 {
		m.Of = made.Partitions
	}
	return m, t, err
}

// parse returns the mark if it makes sense.
func (s *mark) parse(p change.Partition) (m checkpoint.Mark, t checkpoint.Trail, err error) {
	if int(p) >= s.Partitions {
		return m, t, fmt.Errorf("partition %d of %d", p, s.Partitions)
	}
	m = checkpoint.Mark{
		Partition: p, Generation: s.Generation, Fingerprint: s.Fingerprint, At: s.At.UTC(), By: s.By, Reason: s.Reason, Note: s.Note,
	}
	if m.Position, err = s.Position.parse(); err != nil {
		return checkpoint.Mark{}, t, err
	}
	if m.Epoch, err = parseEpoch(s.Epoch); err != nil {
		return checkpoint.Mark{}, t, err
	}
	if s.History != nil {
		t = checkpoint.Trail{Entries: s.History.Entries, Last: s.History.Last.UTC()}
	}
	return m, t, nil
}
