package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/snapshot"
)

// A stored is a checkpoint.Checkpoint as it is stored.
type stored struct {
	Version     int                           `json:"v"`
	Partitions  int                           `json:"n"`
	Subscriber  string                        `json:"subscriber"`
	Partition   *change.Partition             `json:"partition,omitempty"` // of a shared one
	Position    position                      `json:"position"`
	Positions   map[change.Partition]position `json:"positions,omitempty"`
	Snapshots   []progress                    `json:"snapshots,omitempty"`
	Generation  uint64                        `json:"generation,omitempty"`
	Claim       *claim                        `json:"claim,omitempty"` // of an exclusive one
	Epoch       string                        `json:"epoch,omitempty"` // of a shared one
	Began       *beginning                    `json:"began,omitempty"` // likewise
	Fingerprint string                        `json:"fingerprint"`
	Coverage    *change.Coverage              `json:"coverage,omitempty"`
	Lapse       *lapse                        `json:"lapse,omitempty"`
	Losses      []loss                        `json:"losses,omitempty"`
	At          time.Time                     `json:"at"`
	By          string                        `json:"by"`
	Reason      Reason                        `json:"reason"`
	Note        string                        `json:"note,omitempty"`
	History     *trail                        `json:"history,omitempty"`
}

// A claim is a checkpoint.Claim as it is stored.
type claim struct {
	Number  uint64    `json:"number"`
	Process string    `json:"process"`
	Started time.Time `json:"started"`
	Node    string    `json:"node"`
	By      string    `json:"by,omitempty"`
}

// A beginning is a Beginning as it is stored.
type beginning struct {
	At position `json:"at"`
	ID string   `json:"id"`
}

// A lapse is a Lapse as it is stored.
type lapse struct {
	Coverage change.Coverage `json:"coverage"`
	At       position        `json:"at"`
}

// A loss is an entry of Checkpoint.Losses as it is stored.
type loss struct {
	From       position  `json:"from"`
	To         position  `json:"to"`
	Reason     string    `json:"reason"`
	Namespaces []string  `json:"namespaces,omitempty"`
	Found      time.Time `json:"found"`
	By         string    `json:"by,omitempty"`
}

// A progress is a snapshot.Progress as it is stored.
type progress struct {
	Subscription string             `json:"subscription"`
	Filter       uint64             `json:"filter"`
	Reason       snapshot.Reason    `json:"reason"`
	Number       uint32             `json:"number,omitempty"`
	Some         []left             `json:"some,omitempty"`
	Partitions   []change.Partition `json:"partitions,omitempty"`
	Listed       bool               `json:"listed,omitempty"`
	Left         []left             `json:"left,omitempty"`
	Done         bool               `json:"done,omitempty"`
	At           *position          `json:"at,omitempty"`
	Paused       bool               `json:"paused,omitempty"`
	Read         uint64             `json:"read,omitempty"`
	Estimated    uint64             `json:"estimated,omitempty"`
}

// A left is a snapshot.Left as it is stored.
type left struct {
	DB    string `json:"db"`
	Coll  string `json:"coll"`
	From  *value `json:"from,omitempty"`
	Until *value `json:"until,omitempty"`
	Round bool   `json:"round,omitempty"`
}

// A value is a change.Value as it is stored.
type value struct {
	Type byte   `json:"type"`
	Data []byte `json:"data"` // base64
}

// A trail is a checkpoint.Trail as it is stored.
type trail struct {
	Entries uint64    `json:"entries"`
	Last    time.Time `json:"last"`
}

// Encode returns the stored form of a checkpoint, which it trims, with its trail. One that
// [DecodeCheckpoint] would not read back, or whose form is larger than checkpoint.MaxBytes, is an
// error.
func Encode(c Checkpoint, t Trail) ([]byte, error) {
	text, err := encodeCheckpoint(c, t)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint of %s: %w", c.Key, err)
	}
	return text, nil
}

func encodeCheckpoint(c Checkpoint, t Trail) ([]byte, error) {
	c, err := c.Trimmed()
	if err != nil {
		return nil, err
	}
	s := stored{
		Version:     version,
		Partitions:  c.Partitions,
		Subscriber:  c.Subscriber,
		Position:    positionOf(c.Position),
		Generation:  c.Generation,
		Fingerprint: c.Fingerprint,
		At:          c.At,
		By:          c.By,
		Reason:      c.Reason,
		Note:        c.Note,
	}
	s.Coverage = c.Coverage
	if c.Lapse != nil {
		s.Lapse = &lapse{Coverage: c.Lapse.Coverage, At: positionOf(change.At(c.Lapse.At))}
	}
	if c.Shared {
		s.Partition = &c.Partition
		s.Epoch = c.Epoch.String()
		if c.Began != (Beginning{}) {
			s.Began = &beginning{At: positionOf(change.At(c.Began.At)), ID: c.Began.ID}
		}
	} else {
		s.Claim = &claim{Number: c.Claim.Number, Process: c.Claim.Process, Started: c.Claim.Started, Node: c.Claim.Node, By: c.Claim.By}
	}
	for p, at := range c.Positions {
		if s.Positions == nil {
			s.Positions = make(map[change.Partition]position, len(c.Positions))
		}
		s.Positions[p] = positionOf(at)
	}
	for _, p := range c.Snapshots {
		s.Snapshots = append(s.Snapshots, progressOf(p))
	}
	for _, g := range c.Losses {
		s.Losses = append(s.Losses, loss{From: positionOf(g.From), To: positionOf(g.To), Reason: g.Reason, Namespaces: g.Namespaces, Found: g.Found, By: g.By})
	}
	if t.Entries > 0 {
		s.History = &trail{Entries: t.Entries, Last: t.Last.UTC()}
	}
	if _, _, err := s.parse(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsavable, err)
	}
	text, err := json.Marshal(s)
	if err == nil && len(text) > MaxBytes {
		err = fmt.Errorf("it has %d bytes, at most %d are kept", len(text), MaxBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsavable, err)
	}
	return text, nil
}

// Decode reads the checkpoint that is stored under name, which must be the one that nameOf gives
// its key, and its trail. A shared one must have been made for the given number of partitions; 0
// means any.
func Decode(name string, nameOf func(Key) string, partitions int, text []byte) (Checkpoint, Trail, error) {
	return decodeCheckpoint(name, partitions, text, func(k Key) bool { return nameOf(k) == name })
}

// DecodeEntry reads the entry of the history of k that is stored under name. It may have been made
// for any number of partitions.
func DecodeEntry(name string, k Key, text []byte) (Checkpoint, Trail, error) {
	return decodeCheckpoint(name, 0, text, func(of Key) bool { return of == k })
}

func decodeCheckpoint(name string, partitions int, text []byte, is func(Key) bool) (c Checkpoint, t Trail, err error) {
	var s stored
	if err := decode(name, text, version, &s); err != nil {
		return c, t, err
	}
	if s.Partition == nil {
		partitions = 0
	}
	if err := checkPartitions(name, s.Partitions, partitions); err != nil {
		return c, t, err
	}
	c, t, err = s.parse()
	if err == nil && !is(c.Key) {
		err = fmt.Errorf("it is of %s", c.Key)
	}
	if err != nil {
		return Checkpoint{}, Trail{}, corrupt(name, err)
	}
	return c, t, nil
}

// parse returns the checkpoint if it makes sense.
func (s *stored) parse() (c Checkpoint, t Trail, err error) {
	c = Checkpoint{
		Key: Key{Subscriber: s.Subscriber}, Partitions: s.Partitions, Generation: s.Generation, Fingerprint: s.Fingerprint, At: s.At, By: s.By,
		Reason: s.Reason, Note: s.Note, Coverage: s.Coverage,
	}
	if c.Lapse, err = s.Lapse.parse(); err != nil {
		return c, t, fmt.Errorf("lapse: %w", err)
	}
	switch {
	case s.Partition != nil:
		c.Shared = true
		c.Partition = *s.Partition
		if c.Epoch, err = parseEpoch(s.Epoch); err != nil {
			return c, t, err
		}
		if s.Began != nil {
			at, err := s.Began.At.bound()
			if err != nil {
				return c, t, fmt.Errorf("beginning: %w", err)
			}
			c.Began = Beginning{At: at.Time, ID: s.Began.ID}
		}
	case s.Claim == nil:
		return c, t, errors.New("it has neither a partition nor a claim")
	default:
		c.Claim = Claim{Number: s.Claim.Number, Process: s.Claim.Process, Started: s.Claim.Started, Node: s.Claim.Node, By: s.Claim.By}
	}
	if c.Position, err = s.Position.parse(); err != nil {
		return c, t, err
	}
	for p, at := range s.Positions {
		if c.Positions == nil {
			c.Positions = make(map[change.Partition]change.Position, len(s.Positions))
		}
		if c.Positions[p], err = at.parse(); err != nil {
			return c, t, fmt.Errorf("partition %d: %w", p, err)
		}
	}
	for _, p := range s.Snapshots {
		progress, err := p.parse()
		if err != nil {
			return c, t, fmt.Errorf("snapshot of subscription %q: %w", p.Subscription, err)
		}
		c.Snapshots = append(c.Snapshots, progress)
	}
	for _, l := range s.Losses {
		g, err := l.parse()
		if err != nil {
			return c, t, fmt.Errorf("loss: %w", err)
		}
		c.Losses = append(c.Losses, g)
	}
	if s.History != nil {
		t = Trail{Entries: s.History.Entries, Last: s.History.Last.UTC()}
	}
	c, err = c.Trimmed()
	return c, t, err
}

// parse returns the lapse if it makes sense, nil where there is none.
func (s *lapse) parse() (*Lapse, error) {
	if s == nil {
		return nil, nil //nolint:nilnil // there may be none
	}
	at, err := s.At.bound()
	return &Lapse{Coverage: s.Coverage, At: at.Time}, err
}

// parse returns the loss if it makes sense.
func (s *loss) parse() (Gap, error) {
	return (&gap{From: s.From, To: s.To, Reason: s.Reason, Namespaces: s.Namespaces, Found: s.Found, By: s.By}).parse()
}

func progressOf(p snapshot.Progress) progress {
	s := progress{
		Subscription: p.Subscription, Filter: p.Filter, Reason: p.Reason, Number: p.Number, Partitions: p.Partitions, Listed: p.Listed, Done: p.Done, Paused: p.Paused,
		Read: p.Read, Estimated: p.Estimated,
	}
	if !p.At.IsZero() {
		s.At = &position{T: p.At.T, I: p.At.I}
	}
	for _, ns := range p.Some {
		s.Some = append(s.Some, left{DB: ns.DB, Coll: ns.Coll})
	}
	for _, l := range p.Left {
		s.Left = append(s.Left, left{DB: l.Namespace.DB, Coll: l.Namespace.Coll, From: valueOf(l.From), Until: valueOf(l.Until), Round: l.Round})
	}
	return s
}

// parse returns the progress if it makes sense.
func (s *progress) parse() (snapshot.Progress, error) {
	p := snapshot.Progress{
		Subscription: s.Subscription, Filter: s.Filter, Reason: s.Reason, Number: s.Number, Partitions: s.Partitions, Listed: s.Listed, Done: s.Done, Paused: s.Paused,
		Read: s.Read, Estimated: s.Estimated,
	}
	if s.At != nil {
		p.At = change.Timestamp{T: s.At.T, I: s.At.I}
	}
	for _, l := range s.Some {
		p.Some = append(p.Some, change.Namespace{DB: l.DB, Coll: l.Coll})
	}
	for _, l := range s.Left {
		from, err := l.From.parse()
		if err != nil {
			return p, err
		}
		until, err := l.Until.parse()
		if err != nil {
			return p, err
		}
		p.Left = append(p.Left, snapshot.Left{Namespace: change.Namespace{DB: l.DB, Coll: l.Coll}, From: from, Until: until, Round: l.Round})
	}
	return p, nil
}

func valueOf(v change.Value) *value {
	if v.IsZero() {
		return nil
	}
	return &value{Type: v.Type, Data: v.Data}
}

// parse returns the value, which is zero where there is none.
func (s *value) parse() (change.Value, error) {
	switch {
	case s == nil:
		return change.Value{}, nil
	case s.Type == 0:
		return change.Value{}, errors.New("an _id of no type")
	}
	return change.Value{Type: s.Type, Data: s.Data}, nil
}
