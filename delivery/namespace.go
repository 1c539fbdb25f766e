package delivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
)

// CheckNamespace refuses a namespace of which nothing will ever come, with the fault
// SessionUnwatched: the node reads nothing of it, or it is a view or a time series. It is the one
// place that says so: whoever asks for changes or documents asks for a program or a page, and sinks
// ask when they begin. Where there is nothing yet, missing says so to people. An empty Coll is any
// collection of the database, an empty DB any database.
func (h *Hub) CheckNamespace(ctx context.Context, ns change.Namespace) (missing string, err error) {
	if h.cfg.Covers != nil && !h.cfg.Covers(ns) {
		return "", fault.Newf(fault.SessionUnwatched, "the node reads nothing of %.300q", ns.String())
	}
	if h.cfg.Kind == nil || ns.DB == "" {
		return "", nil
	}
	kind, err := h.kinds.of(ctx, ns, h.cfg.Kind)
	if err != nil {
		h.logger.Warn("namespace not looked up", "namespace", ns.String(), "error", err)
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

// missingNotice is the notice about a subscription to what does not exist yet.
func missingNotice(subscription, text string) Notice {
	return Notice{Kind: CollectionMissing, Text: text, Subscription: subscription, Code: fault.MongoMissing, At: time.Now()}
}

// CollectionMissing is the kind of a notice about a subscription to what does not exist yet.
const CollectionMissing = "collection_missing"

// The bounds of kinds.
const (
	kindFor      = time.Second      // how long an answer holds
	kindPatience = 2 * time.Second  // how long MongoDB may take to answer
	kindRest     = 10 * time.Second // how long it is not asked after it has not answered
	mostKinds    = 4096             // how many are remembered
	mostLooks    = 4                // how many are asked for at a time
)

// kinds remembers for a moment what namespaces are, so that many who come at once cost MongoDB one
// look. The zero value is ready.
type kinds struct {
	once  sync.Once
	looks chan struct{}

	mu struct {
		sync.Mutex
		known map[change.Namespace]knownKind
		rests time.Time // until then nothing is known, and nobody asks
	}
}

type knownKind struct {
	kind  change.NamespaceKind
	until time.Time
}

// of returns what a namespace is. It is unknown where nobody tells in time: what may be right is
// not refused, and who comes with many names waits once while MongoDB does not answer.
func (k *kinds) of(ctx context.Context, ns change.Namespace, look func(context.Context, change.Namespace) (change.NamespaceKind, error)) (change.NamespaceKind, error) {
	k.once.Do(func() { k.looks = make(chan struct{}, mostLooks) })
	if kind, known := k.remembered(ns); known {
		return kind, nil
	}
	asking, cancel := context.WithTimeout(ctx, kindPatience)
	defer cancel()
	select {
	case k.looks <- struct{}{}:
		defer func() { <-k.looks }()
	case <-asking.Done():
		return change.NamespaceUnknown, context.Cause(asking)
	}
	if kind, known := k.remembered(ns); known { // somebody else has asked meanwhile
		return kind, nil
	}
	kind, err := look(asking, ns)
	if err != nil {
		kind = change.NamespaceUnknown
	}
	if asking.Err() != nil && ctx.Err() == nil {
		k.rest()
	}
	k.remember(ns, kind)
	return kind, err
}

// rest has nobody ask for a while.
func (k *kinds) rest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.rests = time.Now().Add(kindRest)
}

func (k *kinds) remembered(ns change.Namespace) (change.NamespaceKind, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	known, there := k.mu.known[ns]
	if there = there && now.Before(known.until); !there && now.Before(k.mu.rests) {
		return change.NamespaceUnknown, true
	}
	return known.kind, there
}

func (k *kinds) remember(ns change.Namespace, kind change.NamespaceKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.known == nil || len(k.mu.known) >= mostKinds {
		k.mu.known = make(map[change.Namespace]knownKind)
	}
	k.mu.known[ns] = knownKind{kind, time.Now().Add(kindFor)}
}
