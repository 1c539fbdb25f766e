package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A gap is a checkpoint.Gap as it is stored.
type gap struct {
	Version     int       `json:"v"`
	From        position  `json:"from"`
	To          position  `json:"to"`
	Reason      string    `json:"reason"`
	Namespaces  []string  `json:"namespaces,omitempty"`
	Fingerprint string    `json:"fingerprint"`
	Found       time.Time `json:"found"`
	By          string    `json:"by"`
}

// EncodeGap returns the stored form of an entry of the gap log. One that [DecodeGap] would not read
// back is an error.
func EncodeGap(g Gap) ([]byte, error) {
	s := gap{
		Version:     version,
		From:        positionOf(g.From),
		To:          positionOf(g.To),
		Reason:      g.Reason,
		Namespaces:  g.Namespaces,
		Fingerprint: g.Fingerprint,
		Found:       g.Found.UTC(),
		By:          g.By,
	}
	if _, err := s.parse(); err != nil {
		return nil, fmt.Errorf("encode gap %s: %w", g.ID(), err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode gap %s: %w", g.ID(), err)
	}
	return text, nil
}

// DecodeGap reads the entry of the gap log that is stored under name.
func DecodeGap(name string, text []byte) (Gap, error) {
	var s gap
	if err := decode(name, text, version, &s); err != nil {
		return Gap{}, err
	}
	g, err := s.parse()
	if err != nil {
		return Gap{}, corrupt(name, err)
	}
	return g, nil
}

// parse returns the gap if it makes sense.
func (s *gap) parse() (g Gap, err error) {
	if s.Reason == "" {
		return g, errors.New("it has no reason")
	}
	g = Gap{Reason: s.Reason, Namespaces: s.Namespaces, Fingerprint: s.Fingerprint, Found: s.Found.UTC(), By: s.By}
	if g.From, err = s.From.bound(); err != nil {
		return Gap{}, fmt.Errorf("where it begins: %w", err)
	}
	if g.To, err = s.To.bound(); err != nil {
		return Gap{}, fmt.Errorf("where it ends: %w", err)
	}
	return g, nil
}
