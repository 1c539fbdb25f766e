package admin

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
)

// A SubscriberDetail is the public form of one subscriber, in addition to its row in the list.
type SubscriberDetail struct {
	Subscriber string `json:"subscriber"`
	Kind       Kind   `json:"kind"`
	// Places are where the subscriber is earliest, the earliest first, and PlacesTotal in how many
	// partitions it has a place of its own.
	Places      []Place `json:"places"`
	PlacesTotal int     `json:"places_total"`
	// History is the last checkpoints, the newest first; of a shared subscriber those of the
	// partition where it is earliest.
	History []Saved `json:"history"`
	// Filters are those of the session at the node that was asked, and FiltersTotal how many it
	// has; nil where it has none, or does not say within a second.
	Filters      []ShownFilter `json:"filters"`
	FiltersTotal int           `json:"filters_total"`
	// Error is the error of unreadable data.
	Error string `json:"error,omitempty"`
}

// A Place is where a subscriber is in a partition; Partition is nil for all of those without a
// place of their own.
type Place struct {
	Partition *change.Partition `json:"partition"`
	Position  Position          `json:"position"`
}

// A Saved is one entry of the history of a checkpoint.
type Saved struct {
	Position   Position          `json:"position"`
	Generation uint64            `json:"generation"`
	At         time.Time         `json:"at"`
	By         string            `json:"by"`
	Reason     checkpoint.Reason `json:"reason"`
	Note       string            `json:"note,omitempty"`
}

// A ShownFilter is the public form of a subscription.
type ShownFilter struct {
	Subscription string   `json:"subscription"`
	DB           string   `json:"db,omitempty"`
	Coll         string   `json:"coll,omitempty"`
	Ops          []string `json:"ops,omitempty"`
	Filter       string   `json:"filter,omitempty"`
}

// How many places, checkpoints and filters are shown, and how long a session may take to say which
// filters it has.
const (
	shownPlaces   = 5
	shownHistory  = 10
	shownFilters  = 50
	filterTimeout = time.Second
)

// Filtering returns the subscriptions of a session; see streamer.Node.
type Filtering interface {
	Filters(ctx context.Context, subscriber string, most int) (filters []delivery.Subscription, total int, ok bool)
}

// Detail returns the public form of a subscriber from its checkpoints.
func Detail(ctx context.Context, s checkpoint.Store, name string) (*SubscriberDetail, error) {
	all, err := s.Load(ctx, name)
	d := &SubscriberDetail{Subscriber: name, Places: []Place{}, History: []Saved{}, Filters: []ShownFilter{}}
	if len(all) == 0 {
		return d, err
	}
	type place struct {
		of        checkpoint.Key
		partition *change.Partition
		at        change.Position
	}
	var places []place
	for _, c := range all {
		p := place{of: c.Key, at: c.Position}
		if c.Shared {
			p.partition = &c.Partition
		}
		places = append(places, p)
		for partition, at := range c.Positions {
			places = append(places, place{c.Key, &partition, at})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		switch {
		case b.at.After(a.at):
			return -1
		case a.at.After(b.at):
			return 1
		}
		return 0
	})
	d.Kind = kindOf(all[0].Key)
	d.PlacesTotal = len(places)
	for _, p := range places[:min(len(places), shownPlaces)] {
		d.Places = append(d.Places, Place{Partition: p.partition, Position: ShowPosition(p.at)})
	}
	past, unread := s.History(ctx, places[0].of)
	if err == nil {
		err = unread
	}
	for _, c := range past[:min(len(past), shownHistory)] {
		d.History = append(d.History, Saved{ShowPosition(c.Earliest()), c.Generation, c.At, c.By, c.Reason, c.Note})
	}
	return d, err
}

// ServeDetail answers GET requests for a subscriber with a SubscriberDetail as JSON: 200 with the
// readable data, 403 to identities that may not read everything, 404 for a name without a
// checkpoint and without a session at the node.
func ServeDetail(node Filtering, s checkpoint.Store, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := access.From(r.Context())
		name := r.URL.Query().Get("subscriber")
		switch {
		case !i.Operates():
			access.Refuse(w, http.StatusForbidden, fault.Newf(fault.AccessForbidden, "checkpoints need the right to every namespace"))
			return
		case name == "":
			access.Refuse(w, http.StatusBadRequest, fault.Newf(fault.CommandBadArgument, "parameter subscriber: required"))
			return
		}
		reads, stop := context.WithTimeoutCause(r.Context(), readTimeout, silence())
		defer stop()
		d, err := Detail(reads, s, name)
		d.Error = shownError(i, reason(reads, err), logger)
		ctx, cancel := context.WithTimeout(r.Context(), filterTimeout)
		defer cancel()
		filters, total, connected := node.Filters(ctx, name, shownFilters)
		if err == nil && d.Kind == "" && !connected {
			access.Refuse(w, http.StatusNotFound, fault.Newf(fault.CommandBadArgument, "subscriber %.60q has no checkpoint, and no session at this node", name))
			return
		}
		if connected {
			d.FiltersTotal = total
			for _, sub := range filters {
				f := sub.Program.Filter()
				shown := ShownFilter{Subscription: sub.ID, DB: f.DB, Coll: f.Coll, Filter: f.Source}
				for _, op := range f.Ops {
					shown.Ops = append(shown.Ops, op.String())
				}
				d.Filters = append(d.Filters, shown)
			}
		}
		answer(w, http.StatusOK, d)
	})
}
