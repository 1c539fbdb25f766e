package oplog

import (
	"context"
	"slices"
	"strings"

	"github.com/mongostream/streamer/change"
)

// A Scope is the namespaces whose changes somebody reads; one without a collection is a whole
// database. A nil Scope is everything.
//
// A change concerns a namespace if the namespace is its own, or the target of its rename, or within
// the database or the deployment that it is of (dropDatabase, invalidate).
type Scope []change.Namespace

// maxScope bounds a Scope: a longer one is everything.
const maxScope = 16

// ScopeOf returns the scope of some namespaces. It is everything if there are none, too many, or
// one without a database.
func ScopeOf(namespaces ...change.Namespace) (s Scope) {
	for _, ns := range namespaces {
		if ns.DB == "" {
			return nil
		}
		if !slices.Contains(s, ns) {
			s = append(s, ns)
		}
	}
	if len(s) > maxScope {
		return nil
	}
	return s
}

// Concerns reports whether changes of a namespace may concern the scope. The name is that of a
// collection, as db.coll, of a database, or empty: of everything.
func (s Scope) Concerns(name string) bool {
	if s == nil || name == "" {
		return true
	}
	db, coll, _ := strings.Cut(name, ".")
	return slices.ContainsFunc(s, func(ns change.Namespace) bool {
		return ns.DB == db && (ns.Coll == "" || coll == "" || ns.Coll == coll)
	})
}

// covers reports whether a reader of the scope has everything that one of another scope needs.
func (s Scope) covers(other Scope) bool {
	if s == nil || other == nil {
		return s == nil
	}
	return !slices.ContainsFunc(other, func(ns change.Namespace) bool {
		return !slices.Contains(s, ns) && !slices.Contains(s, change.Namespace{DB: ns.DB})
	})
}

// union returns a scope that covers both.
func (s Scope) union(other Scope) Scope {
	if s == nil || other == nil {
		return nil
	}
	return ScopeOf(slices.Concat(s, other)...)
}

// A Retainer is a Source that also has a retained log, which goes back beyond MongoDB's.
type Retainer interface {
	Source
	// OpenNarrow is Open for those who read a scope, nil for everything. If retained is true, the
	// stream begins in the retained log: it may leave out changes, and losses, that do not concern
	// the scope. Where the retained log ends, Next returns ErrJoin. If left is true, MongoDB is not
	// asked: then the error is ErrJoin if the retained log does not have the position.
	OpenNarrow(ctx context.Context, from change.Position, scope Scope, left bool) (stream Stream, retained bool, err error)
}

// openSource opens a stream that has everything that the reader's cursors need.
func (r *reader) openSource(ctx context.Context, from change.Position) (Stream, error) {
	source, can := r.log.source.(Retainer)
	if !can || r.tail {
		return r.log.source.Open(ctx, from)
	}
	scope, left := r.settle()
	stream, retained, err := source.OpenNarrow(ctx, from, scope, left)
	if err != nil {
		return nil, err
	}
	r.log.locked(func() { r.retained = retained; r.log.notify() })
	if !retained {
		r.widen()
	}
	return stream, nil
}

// settle decides the scope of a catch-up, before its first stream is opened: that of the cursors
// that wait for it. From then on the catch-up takes only cursors that its scope covers. It also
// returns whether MongoDB does not have the catch-up's position.
func (r *reader) settle() (scope Scope, left bool) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.settled {
		return r.scope, r.retained
	}
	r.settled = true
	first := true
	for c := range l.waiting {
		switch {
		case c.waiting != r:
		case first:
			r.scope = c.scope
			first = false
		default:
			r.scope = r.scope.union(c.scope)
		}
	}
	return r.scope, r.retained
}

// widen makes the scope of a catch-up everything, unless it has begun to read a narrower one.
func (r *reader) widen() {
	r.log.locked(func() {
		if !r.opened {
			r.settled, r.scope = true, nil
		}
	})
}
