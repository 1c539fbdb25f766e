//go:build wip

package admin

import (
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
)

// A Position is what is shown of a change.Position.
type Position struct {
	Time time.Time `json:"time"` // of the cluster time, by the server's clock
	T    uint32    `json:"t"`
	I    uint32    `json:"i"`
	// Hash tells positions of one cluster time apart; it is empty for a time without a token.
	Hash string `json:"hash,omitempty"`
	// Event says that an event stands there, and not a point of progress between events.
	Event bool `json:"event"`
}

// ShowPosition returns what may be shown of a position.
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

// A Mark is what is shown of a checkpoint.Mark.
type Mark struct {
	Partition  change.Partition  `json:"partition"`
	Position   Position          `json:"position"`
	Generation uint64            `json:"generation"`
	Epoch      string            `json:"epoch"`
	At         time.Time         `json:"at"`
	By         string            `json:"by"`
	Reason     checkpoint.Reason `json:"reason"`
	Note       string            `json:"note,omitempty"`
	// Of is of how many partitions it was one, before these were counted anew; 0 is as many as there are.
	Of          int    `json:"of,omitempty"`
	Fingerprint string `json:"fingerprint"`
}

// ShowMark returns what may be shown of a mark.
func ShowMark(m checkpoint.Mark) Mark {
	return Mark{
		Partition: m.Partition, Position: ShowPosition(m.Position), Generation: m.Generation, Epoch: m.Epoch.String(), At: m.At, By: m.By,
		Reason: m.Reason, Note: m.Note, Of: m.Of, Fingerprint: m.Fingerprint,
	}
}

// ShowMarks returns what may be shown of marks.
func ShowMarks(marks []checkpoint.Mark) []Mark {
	shown := make([]Mark, len(marks))
	for i, m := range marks {
		shown[i] = ShowMark(m)
	}
	return shown
}

// An Origin is what is shown of a checkpoint.Origin.
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

// A Backend is what is shown of a checkpoint.Backend: what keeps the marks, and through which etcd nodes share the partitions. What is not
// known is empty.
type Backend struct {
	Store  string `json:"store,omitempty"`
	Etcd   string `json:"etcd,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	ID     string `json:"id,omitempty"`
}

// ShowBackend returns what may be shown of a backend.
func ShowBackend(b checkpoint.Backend) Backend { return Backend(b) }

// ShowOrigin returns what may be shown of an origin.
func ShowOrigin(o checkpoint.Origin) Origin {
	return Origin{
		Cluster: o.Cluster, Incarnation: o.Incarnation, Partitions: o.Partitions, Source: o.Source, Start: ShowPosition(change.At(o.Start)),
		At: o.At, By: o.By, Backend: ShowBackend(o.Backend),
	}
}

// A Gap is what is shown of an entry of the gap log.
type Gap struct {
	ID         string           `json:"id"`
	Partition  change.Partition `json:"partition"`
	Of         int              `json:"of,omitempty"` // as in Mark
	LostFrom   Position         `json:"lost_from"`
	LostTo     Position         `json:"lost_to"`
	Reason     string           `json:"reason"`
	Namespaces []string         `json:"namespaces"` // empty: everything that is watched
	Epoch      string           `json:"epoch"`
	Found      time.Time        `json:"found"`
	By         string           `json:"by"`
	Rescan     []Rescan         `json:"rescan,omitempty"`
}

// A Rescan is what is shown of the rescan of a collection.
type Rescan struct {
	Collection string `json:"collection"`
	Begun      bool   `json:"begun"`
	Done       bool   `json:"done"`
}

// ShowGap returns what may be shown of an entry of the gap log.
func ShowGap(g checkpoint.Gap) Gap {
	shown := Gap{
		ID: g.ID(), Partition: g.Partition, Of: g.Of, LostFrom: ShowPosition(g.From), LostTo: ShowPosition(g.To), Reason: g.Reason,
		Namespaces: append([]string{}, g.Namespaces...), Epoch: g.Epoch.String(), Found: g.Found, By: g.By,
	}
	for _, collection := range slices.Sorted(maps.Keys(g.Rescan)) {
		state := g.Rescan[collection]
		shown.Rescan = append(shown.Rescan, Rescan{Collection: collection, Begun: state.After != nil || state.Done, Done: state.Done})
	}
	return shown
}

// ShowGaps returns what may be shown of the gap log.
func ShowGaps(gaps []checkpoint.Gap) []Gap {
	shown := make([]Gap, len(gaps))
	for i, g := range gaps {
		shown[i] = ShowGap(g)
	}
	return shown
}
