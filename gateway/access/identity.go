package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
)

// An Identity is who is at the other end, and what that one may do. It is never changed once made. The zero value may nothing.
type Identity struct {
	// Name names it in logs and metrics.
	Name string
	// Namespaces are what may be subscribed to: db.coll, db.* for a whole database, * for everything.
	Namespaces []string
	// MaxSubscriptions bounds the subscriptions of all its connections on a node; 0: no bound of its own.
	MaxSubscriptions int
	// EventsPerSecond and BytesPerSecond bound what all its connections on a node are sent; 0: no bound.
	EventsPerSecond, BytesPerSecond int
	// Expires is when what proved it runs out; the zero time: never.
	Expires time.Time

	key   string                    // of its account: names of tokens, subjects and JWTs are apart
	again func() (*Identity, error) // proves it again; nil: there is nothing to prove
}

// everything is the pattern of all namespaces.
const everything = "*"

// Anonymous returns the identity of everybody where nothing is configured: everything allowed, no limits.
func Anonymous() *Identity {
	return &Identity{Name: "anonymous", Namespaces: []string{everything}, key: "anonymous"}
}

// Allows reports whether a subscription to the namespace is allowed. One that leaves db or coll empty, and so means more than one
// collection, is allowed only with everything allowed.
func (i *Identity) Allows(db, coll string) bool {
	if i == nil {
		return false
	}
	return slices.ContainsFunc(i.Namespaces, func(pattern string) bool {
		if pattern == everything {
			return true
		}
		// Names of databases have no dot, those of collections may.
		d, c, dot := strings.Cut(pattern, ".")
		return dot && db != "" && coll != "" && d == db && (c == everything || c == coll)
	})
}

// Permit is Allows with a fault that says what is missing.
func (i *Identity) Permit(db, coll string) error {
	switch {
	case i.Allows(db, coll):
		return nil
	case i == nil:
		return fault.Newf(fault.AccessForbidden, "nobody is identified")
	case db == "" || coll == "":
		return fault.Newf(fault.AccessForbidden, "%q may subscribe to single collections only: name db and coll", i.Name)
	}
	return fault.Newf(fault.AccessForbidden, "%q may not subscribe to %q", i.Name, db+"."+coll)
}

// sameRights reports whether two proofs give the same rights under the same name.
func (i *Identity) sameRights(j *Identity) bool {
	return i.key == j.key && i.Name == j.Name && slices.Equal(i.Namespaces, j.Namespaces) && i.MaxSubscriptions == j.MaxSubscriptions &&
		i.EventsPerSecond == j.EventsPerSecond && i.BytesPerSecond == j.BytesPerSecond
}

const (
	maxName       = 256
	maxNamespaces = 1000
	maxLimit      = 1 << 40
)

// check says what makes an identity unusable, so that a slip of the pen never gives or takes rights in silence.
func (i *Identity) check() error {
	switch {
	case i.Name == "" || len(i.Name) > maxName:
		return fmt.Errorf("the name must have 1 to %d bytes", maxName)
	case len(i.Namespaces) == 0:
		return errors.New("no namespace is allowed: give db.coll, db.* or *")
	case len(i.Namespaces) > maxNamespaces:
		return fmt.Errorf("more than %d namespaces", maxNamespaces)
	}
	for _, limit := range []int{i.MaxSubscriptions, i.EventsPerSecond, i.BytesPerSecond} {
		if limit < 0 || limit > maxLimit {
			return fmt.Errorf("a limit must be between 0 (none) and %d", maxLimit)
		}
	}
	for _, pattern := range i.Namespaces {
		db, coll, dot := strings.Cut(pattern, ".")
		switch {
		case pattern == everything:
		case !dot || db == "" || coll == "" || strings.Contains(db, "*") || coll != everything && strings.Contains(coll, "*"):
			return fmt.Errorf("namespace %q: must be db.coll, db.* or *", pattern)
		}
	}
	return nil
}
