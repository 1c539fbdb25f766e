package admin

import (
	"encoding/hex"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/snapshot"
)

// A Position is the public form of a change.Position.
type Position struct {
	Time time.Time `json:"time"` // of the cluster time, by the server's clock
	T    uint32    `json:"t"`
	I    uint32    `json:"i"`
	// Hash distinguishes positions of one cluster time; it is empty for a time without a token.
	Hash string `json:"hash,omitempty"`
	// Event says that an event is there, and not a point of progress between events.
	Event bool `json:"event"`
}

// ShowPosition returns the public form of a position.
func ShowPosition(p change.Position) Position {
	shown := Position{Time: p.Time.Time(), T: p.Time.T, I: p.Time.I, Event: !p.IsProgress()}
	if p.Token != nil {
		hash := p.Hash()
		shown.Hash = hex.EncodeToString(hash[:8])
	}
	return shown
}

// String returns the position in one word.
func (p Position) String() string {
	text := change.Timestamp{T: p.T, I: p.I}.String()
	if p.Event {
		text += "+" + p.Hash
	}
	return text
}

// A Kind is the kind of a subscriber.
type Kind string

// The kinds.
const (
	Exclusive Kind = "exclusive" // one process, at whatever node: one checkpoint for all partitions
	Shared    Kind = "shared"    // each partition's owner: one checkpoint for each partition
)

func kindOf(k checkpoint.Key) Kind {
	if k.Shared {
		return Shared
	}
	return Exclusive
}

// A Claim is the public form of a checkpoint.Claim.
type Claim struct {
	Number   uint64    `json:"number"`
	Process  string    `json:"process"`
	Started  time.Time `json:"started"`
	Node     string    `json:"node"`
	Identity string    `json:"identity,omitempty"`
}

func showClaim(c checkpoint.Checkpoint) *Claim {
	if c.Shared {
		return nil
	}
	return &Claim{Number: c.Claim.Number, Process: c.Claim.Process, Started: c.Claim.Started, Node: c.Claim.Node, Identity: c.Claim.By}
}

// A Checkpoint is the public form of a checkpoint.Checkpoint.
type Checkpoint struct {
	Subscriber string            `json:"subscriber"`
	Kind       Kind              `json:"kind"`
	Partition  *change.Partition `json:"partition,omitempty"` // of a shared subscriber
	Position   Position          `json:"position"`
	// Positions are those of an exclusive subscriber in partitions where it is elsewhere.
	Positions map[change.Partition]Position `json:"positions,omitempty"`
	// Partitions is the N of the positions.
	Partitions int        `json:"partitions"`
	Snapshots  []Snapshot `json:"snapshots,omitempty"`
	Generation uint64     `json:"generation"`
	Claim      *Claim     `json:"claim,omitempty"` // of an exclusive subscriber
	Epoch      string     `json:"epoch,omitempty"` // of a shared one
	// At is when it was saved, By which node or operator.
	At          time.Time         `json:"at"`
	By          string            `json:"by"`
	Reason      checkpoint.Reason `json:"reason"`
	Note        string            `json:"note,omitempty"`
	Fingerprint string            `json:"fingerprint"`
}

// A Snapshot is the public form of a snapshot.Progress.
type Snapshot struct {
	Subscription string          `json:"subscription"`
	Reason       snapshot.Reason `json:"reason"`
	Done         bool            `json:"done"`
	// Read counts the documents that were read, Estimated those that there were at the beginning.
	Read      uint64 `json:"read"`
	Estimated uint64 `json:"estimated"`
	// Paused says that an operator has paused it, Remaining how long it may take, in seconds, where
	// that is known.
	Paused    bool    `json:"paused,omitempty"`
	Remaining float64 `json:"remaining_seconds,omitempty"`
}

// showCheckpoint returns the public form of a checkpoint.
func showCheckpoint(c checkpoint.Checkpoint) Checkpoint {
	shown := Checkpoint{
		Subscriber: c.Subscriber, Kind: kindOf(c.Key), Position: ShowPosition(c.Position), Partitions: c.Partitions, Generation: c.Generation, Claim: showClaim(c),
		At: c.At, By: c.By, Reason: c.Reason, Note: c.Note, Fingerprint: c.Fingerprint,
	}
	if c.Shared {
		shown.Partition = &c.Partition
		shown.Epoch = c.Epoch.String()
	}
	for p, at := range c.Positions {
		if shown.Positions == nil {
			shown.Positions = make(map[change.Partition]Position, len(c.Positions))
		}
		shown.Positions[p] = ShowPosition(at)
	}
	shown.Snapshots = showSnapshots(c.Snapshots)
	return shown
}

func showSnapshots(all []snapshot.Progress) (shown []Snapshot) {
	for _, s := range all {
		shown = append(shown, Snapshot{
			Subscription: s.Subscription, Reason: s.Reason, Done: s.Done, Read: s.Read, Estimated: s.Estimated, Paused: s.Paused,
			Remaining: s.Remaining(time.Now()).Seconds(),
		})
	}
	return shown
}

// ShowCheckpoints returns the public form of checkpoints.
func ShowCheckpoints(all []checkpoint.Checkpoint) []Checkpoint {
	shown := make([]Checkpoint, len(all))
	for i, c := range all {
		shown[i] = showCheckpoint(c)
	}
	return shown
}

// An Origin is the public form of a checkpoint.Origin.
type Origin struct {
	Cluster     string    `json:"cluster"`
	Incarnation uint64    `json:"incarnation"`
	Partitions  int       `json:"partitions"`
	Source      string    `json:"source"`
	Start       Position  `json:"start"`
	At          time.Time `json:"at"`
	By          string    `json:"by"`
	Backend     Backend   `json:"backend"`
}

// A Backend is the public form of a checkpoint.Backend: the store of the checkpoints, and the etcd
// through which nodes share the partitions. Unknown fields are empty.
type Backend struct {
	Store  string `json:"store,omitempty"`
	Etcd   string `json:"etcd,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	ID     string `json:"id,omitempty"`
}

// showBackend returns the public form of a backend.
func showBackend(b checkpoint.Backend) Backend { return Backend(b) }

// ShowOrigin returns the public form of an origin.
func ShowOrigin(o checkpoint.Origin) Origin {
	return Origin{
		Cluster: o.Cluster, Incarnation: o.Incarnation, Partitions: o.Partitions, Source: o.Source, Start: ShowPosition(change.At(o.Start)),
		At: o.At, By: o.By, Backend: showBackend(o.Backend),
	}
}

// A Gap is the public form of an entry of the gap log.
type Gap struct {
	ID         string    `json:"id"`
	LostFrom   Position  `json:"lost_from"`
	LostTo     Position  `json:"lost_to"`
	Reason     string    `json:"reason"`
	Namespaces []string  `json:"namespaces"` // empty: everything that is watched
	Found      time.Time `json:"found"`
	By         string    `json:"by"`
}

// showGap returns the public form of an entry of the gap log.
func showGap(g checkpoint.Gap) Gap {
	return Gap{
		ID: g.ID(), LostFrom: ShowPosition(g.From), LostTo: ShowPosition(g.To), Reason: g.Reason,
		Namespaces: append([]string{}, g.Namespaces...), Found: g.Found, By: g.By,
	}
}

// ShowGaps returns the public form of the gap log.
func ShowGaps(gaps []checkpoint.Gap) []Gap {
	shown := make([]Gap, len(gaps))
	for i, g := range gaps {
		shown[i] = showGap(g)
	}
	return shown
}
