package delivery

import (
	"context"
	"fmt"
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
)

// CheckNamespace refuses a namespace without changes, with the fault SessionUnwatched: the node
// does not read it, or it is a view or a time series. It is the only place of this check: all
// requests for changes or documents compile a program or read a page, and sinks check when they
// start. If the namespace does not exist yet, missing is a text for people. An empty Coll is any
// collection of the database, an empty DB any database. It looks up namespaces that are not among
// the names.
func (h *Hub) CheckNamespace(ctx context.Context, ns change.Namespace, names Names) (missing string, err error) {
	if !h.covers(ns) {
		return "", fault.Newf(fault.SessionUnwatched, "the node reads nothing of %.300q", ns.String())
	}
	if !h.looks(ns) {
		return "", nil
	}
	kind, known := names[ns]
	if !known {
		kind = h.Names(ctx, []change.Namespace{ns})[ns]
	}
	switch kind {
	case change.NamespaceView:
		return "", fault.Newf(fault.SessionUnwatched, "%.300q is a view, which has no changes: use the collection that it shows", ns.String())
	case change.NamespaceTimeSeries:
		return "", fault.Newf(fault.SessionUnwatched, "%.300q is a time series, which has no changes", ns.String())
	case change.NamespaceMissing:
		if ns.Coll == "" {
			return fmt.Sprintf("There is no collection in the database %.100q yet: check the name. What is written there later comes.", ns.DB), nil
		}
		return fmt.Sprintf("There is no collection %.300q yet: check the name. What is written there later comes.", ns.String()), nil
	case change.NamespaceUnknown, change.NamespaceCollection:
	}
	return "", nil
}

// Names looks up several namespaces at once, for Compile: a request with many names costs MongoDB
// one listing of each database.
func (h *Hub) Names(ctx context.Context, all []change.Namespace) Names {
	asked := slices.DeleteFunc(slices.Clone(all), func(ns change.Namespace) bool { return !h.looks(ns) || !h.covers(ns) })
	if len(asked) == 0 {
		return nil
	}
	names, err := h.kinds.of(ctx, asked, h.cfg.Kinds)
	if err != nil {
		h.cfg.Logger.Warn("namespaces not looked up", "namespaces", len(asked), "error", err)
	}
	return names
}

func (h *Hub) covers(ns change.Namespace) bool { return h.cfg.Covers == nil || h.cfg.Covers(ns) }

// looks reports whether it can be known what there is of a namespace.
func (h *Hub) looks(ns change.Namespace) bool { return h.cfg.Kinds != nil && ns.DB != "" }
