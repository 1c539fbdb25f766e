package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
)

// version is the version that this code writes, and the highest that it reads, except for origins.
const version = 1

// A position is a change.Position as it is stored.
type position struct {
	Token []byte `json:"token,omitempty"` // base64
	T     uint32 `json:"t"`
	I     uint32 `json:"i"`
}

func positionOf(p change.Position) position {
	return position{Token: p.Token, T: p.Time.T, I: p.Time.I}
}

// bound returns the position, which may be zero if it is unknown.
func (s position) bound() (change.Position, error) {
	if s.Token == nil && s.T == 0 && s.I == 0 {
		return change.Position{}, nil
	}
	return s.parse()
}

// parse returns the position if it makes sense.
func (s position) parse() (change.Position, error) {
	at := change.Timestamp{T: s.T, I: s.I}
	if s.Token == nil {
		if at.IsZero() {
			return change.Position{}, errors.New("it has no position")
		}
		return change.At(at), nil
	}
	p, err := change.ParseToken(s.Token)
	if err != nil {
		return change.Position{}, err
	}
	if p.Time != at {
		return change.Position{}, fmt.Errorf("its time is %s, its token's %s", at, p.Time)
	}
	return p, nil
}

// decode reads the version first, because of one above the newest that is known nothing else need
// be as expected.
func decode(key string, value []byte, newest int, into any) error {
	var head struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(value, &head); err != nil {
		return corrupt(key, err)
	}
	if head.Version > newest {
		return fault.Newf(fault.CheckpointNewer, "%s has version %d, this program reads up to %d", key, head.Version, newest)
	}
	if head.Version < 1 {
		return corrupt(key, errors.New("it has no version"))
	}
	if err := json.Unmarshal(value, into); err != nil {
		return corrupt(key, err)
	}
	return nil
}

func checkPartitions(key string, made, expected int) error {
	if made < 1 || made > change.MaxPartitions {
		return corrupt(key, fmt.Errorf("made for %d partitions", made))
	}
	if expected != 0 && made != expected {
		return fault.Newf(fault.CheckpointPartitions, "%s was made for %d partitions, not for %d", key, made, expected)
	}
	return nil
}

func corrupt(key string, cause error) error {
	return fault.Newf(fault.CheckpointCorrupt, "%s: %w", key, cause)
}

// parseEpoch reads what Epoch.String writes, and nothing else.
func parseEpoch(text string) (change.Epoch, error) {
	incarnation, revision, _ := strings.Cut(text, ".")
	var e change.Epoch
	var err error
	if e.Incarnation, err = strconv.ParseUint(incarnation, 10, 64); err == nil {
		e.Revision, err = strconv.ParseUint(revision, 10, 64)
	}
	if err != nil || e.String() != text {
		return change.Epoch{}, fmt.Errorf("its epoch is %q", text)
	}
	return e, nil
}
