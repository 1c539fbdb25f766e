package delivery

import (
	"context"
	"sync"
	"time"

	"github.com/mongostream/streamer/change"
)

// Names are the kinds of several namespaces in MongoDB.
type Names map[change.Namespace]change.NamespaceKind

// The bounds of kinds.
const (
	kindFor      = time.Second      // how long an answer holds
	kindPatience = 2 * time.Second  // how long MongoDB may take to answer
	kindRest     = 10 * time.Second // how long it is not asked after it has not answered
	mostKinds    = 4096             // how many are remembered
	mostLooks    = 4                // namespaces per request
)

// kinds remembers for a moment what namespaces are, so that many who come at once cost MongoDB one
// look. The zero value is ready.
type kinds struct {
	once  sync.Once
	looks chan struct{}

	mu struct {
		sync.Mutex
		known map[change.Namespace]knownKind
		rests time.Time // until then nothing is known, and there are no requests
	}
}

type knownKind struct {
	kind  change.NamespaceKind
	until time.Time
}

// of returns the kinds of namespaces. It omits those for which no answer arrives in time: a
// namespace that may be valid is not refused, and a request with many names waits only once while
// MongoDB does not answer.
func (k *kinds) of(ctx context.Context, all []change.Namespace, look func(context.Context, []change.Namespace) (map[change.Namespace]change.NamespaceKind, error)) (Names, error) {
	k.once.Do(func() { k.looks = make(chan struct{}, mostLooks) })
	names := make(Names, len(all))
	if all = k.remembered(all, names); len(all) == 0 {
		return names, nil
	}
	asking, cancel := context.WithTimeout(ctx, kindPatience)
	defer cancel()
	select {
	case k.looks <- struct{}{}:
		defer func() { <-k.looks }()
	case <-asking.Done():
		return names, context.Cause(asking)
	}
	if all = k.remembered(all, names); len(all) == 0 { // another request has asked meanwhile
		return names, nil
	}
	told, err := look(asking, all)
	if asking.Err() != nil && ctx.Err() == nil && len(told) == 0 { // it answers those who ask for less
		k.rest()
	}
	for _, ns := range all {
		if kind, there := told[ns]; there {
			names[ns] = kind
		} else {
			names[ns] = change.NamespaceUnknown
		}
	}
	k.remember(all, names)
	return names, err
}

// rest suspends requests for a while.
func (k *kinds) rest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.rests = time.Now().Add(kindRest)
}

// remembered adds the cached kinds to names, and returns the other namespaces.
func (k *kinds) remembered(all []change.Namespace, names Names) (unknown []change.Namespace) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	rests := now.Before(k.mu.rests)
	for _, ns := range all {
		switch known, there := k.mu.known[ns]; {
		case there && now.Before(known.until):
			names[ns] = known.kind
		case rests:
			names[ns] = change.NamespaceUnknown
		default:
			unknown = append(unknown, ns)
		}
	}
	return unknown
}

// remember caches the kinds of namespaces. It caches none of a request with very many.
func (k *kinds) remember(all []change.Namespace, names Names) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(all) > mostKinds/4 {
		return
	}
	if k.mu.known == nil || len(k.mu.known)+len(all) > mostKinds {
		k.mu.known = make(map[change.Namespace]knownKind)
	}
	until := time.Now().Add(kindFor)
	for _, ns := range all {
		k.mu.known[ns] = knownKind{names[ns], until}
	}
}
