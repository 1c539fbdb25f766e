package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
)

// originVersion is that of an origin that names a format of _ids: programs that know the first one
// only must not read it.
const originVersion = 2

// An origin is a checkpoint.Origin as it is stored.
type origin struct {
	Version     int             `json:"v"`
	Partitions  int             `json:"n"`
	IDFormat    change.IDFormat `json:"id_format,omitempty"`
	Cluster     string          `json:"cluster"`
	Incarnation uint64          `json:"incarnation"`
	Source      string          `json:"source"`
	Start       position        `json:"start"`
	At          time.Time       `json:"at"`
	By          string          `json:"by"`
}

// EncodeOrigin returns the stored form of an origin. One that [DecodeOrigin] would not read back is
// an error.
func EncodeOrigin(o Origin) ([]byte, error) {
	s := origin{
		Version:     version,
		Partitions:  o.Partitions,
		IDFormat:    o.IDFormat,
		Cluster:     o.Cluster,
		Incarnation: o.Incarnation,
		Source:      o.Source,
		Start:       positionOf(change.At(o.Start)),
		At:          o.At.UTC(),
		By:          o.By,
	}
	if o.IDFormat != change.FirstIDFormat {
		s.Version = originVersion
	}
	if _, err := s.parse(); err != nil {
		return nil, fmt.Errorf("encode origin: %w", err)
	}
	value, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode origin: %w", err)
	}
	return value, nil
}

// DecodeOrigin reads the origin that is stored under key. It must have been made for the given
// number of partitions; 0 means any.
func DecodeOrigin(key string, partitions int, value []byte) (Origin, error) {
	var s origin
	if err := decode(key, value, originVersion, &s); err != nil {
		return Origin{}, err
	}
	if err := checkPartitions(key, s.Partitions, partitions); err != nil {
		return Origin{}, err
	}
	o, err := s.parse()
	if err != nil {
		return Origin{}, corrupt(key, err)
	}
	return o, nil
}

// parse returns the origin if it makes sense.
func (s *origin) parse() (Origin, error) {
	o := Origin{
		Cluster:     s.Cluster,
		Incarnation: s.Incarnation,
		Partitions:  s.Partitions,
		IDFormat:    s.IDFormat,
		Source:      s.Source,
		Start:       change.Timestamp{T: s.Start.T, I: s.Start.I},
		At:          s.At.UTC(),
		By:          s.By,
	}
	switch {
	case o.Cluster == "":
		return Origin{}, errors.New("it has no cluster id")
	case o.Incarnation == 0:
		return Origin{}, errors.New("it has no incarnation")
	case o.Partitions < 1 || o.Partitions > change.MaxPartitions:
		return Origin{}, fmt.Errorf("it has %d partitions", o.Partitions)
	case o.Start.IsZero():
		return Origin{}, errors.New("it has no start")
	case o.IDFormat < change.FirstIDFormat || o.IDFormat > change.LatestIDFormat:
		return Origin{}, fmt.Errorf("it has the format %d of _ids, this program knows %d to %d", o.IDFormat, change.FirstIDFormat, change.LatestIDFormat)
	}
	return o, nil
}
