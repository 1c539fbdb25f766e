package snapshot

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"

	"github.com/mongostream/streamer/change"
)

// maxText bounds the text of progress: clients send it in a header.
const maxText = 4 << 10

// A textProgress is a Progress as text has it: what AppendState has.
type textProgress struct {
	Subscription string             `json:"s"`
	Filter       uint64             `json:"f"`
	Reason       Reason             `json:"r"`
	Number       uint32             `json:"i,omitempty"`
	Partitions   []change.Partition `json:"p,omitempty"`
	Listed       bool               `json:"l,omitempty"`
	Done         bool               `json:"d,omitempty"`
	Read         uint64             `json:"n,omitempty"`
	Estimated    uint64             `json:"e,omitempty"`
	Some         []textLeft         `json:"o,omitempty"`
	Left         []textLeft         `json:"t,omitempty"`
}

type textLeft struct {
	DB    string       `json:"d"`
	Coll  string       `json:"c"`
	From  change.Value `json:"f,omitzero"`
	Until change.Value `json:"u,omitzero"`
	Round bool         `json:"r,omitempty"`
}

// Text returns the progress of snapshots as text, safe in headers. It is empty if there is none, or
// too much.
func Text(all []Progress) string {
	var list []textProgress
	for _, p := range all {
		t := textProgress{
			Subscription: p.Subscription, Filter: p.Filter, Reason: p.Reason, Number: p.Number, Partitions: p.Partitions, Listed: p.Listed, Done: p.Done,
			Read: p.Read, Estimated: p.Estimated,
		}
		for _, ns := range p.Some {
			t.Some = append(t.Some, textLeft{DB: ns.DB, Coll: ns.Coll})
		}
		for _, l := range p.Left {
			t.Left = append(t.Left, textLeft{l.Namespace.DB, l.Namespace.Coll, l.From, l.Until, l.Round})
		}
		list = append(list, t)
	}
	text, err := json.Marshal(list)
	if err != nil || len(list) == 0 || len(text) > maxText {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// ParseText decodes what Text has returned.
func ParseText(text string) (all []Progress, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) > maxText {
		return nil, errors.New("not the progress of snapshots")
	}
	var list []textProgress
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, errors.New("not the progress of snapshots")
	}
	for _, t := range list {
		p := Progress{
			Subscription: t.Subscription, Filter: t.Filter, Reason: t.Reason, Number: t.Number, Partitions: t.Partitions, Listed: t.Listed, Done: t.Done,
			Read: t.Read, Estimated: t.Estimated,
		}
		for _, o := range t.Some {
			p.Some = append(p.Some, change.Namespace{DB: o.DB, Coll: o.Coll})
		}
		for _, l := range t.Left {
			p.Left = append(p.Left, Left{Namespace: change.Namespace{DB: l.DB, Coll: l.Coll}, From: l.From, Until: l.Until, Round: l.Round})
		}
		all = append(all, p)
	}
	return all, nil
}

// Resumed returns a subscriber's progress in stored snapshots. Its own progress, up to which it has
// had the documents, may be earlier: it counts for the same snapshot; in another one, which has
// begun since, the subscriber has nothing.
func Resumed(stored, own []Progress) (all []Progress) {
	for _, p := range stored {
		for _, o := range own {
			if o.Subscription == p.Subscription && o.Filter == p.Filter {
				if o.Number == p.Number {
					o.Paused, o.At = p.Paused, p.At
					p = o
				} else {
					p = Progress{Subscription: p.Subscription, Filter: p.Filter, Reason: p.Reason, Number: p.Number}
				}
				break
			}
		}
		all = append(all, p)
	}
	for _, o := range own { // which it has begun, and nobody has kept yet
		if !slices.ContainsFunc(stored, func(p Progress) bool { return p.Subscription == o.Subscription }) {
			all = append(all, o)
		}
	}
	return all
}
