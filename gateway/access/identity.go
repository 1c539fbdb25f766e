package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
)

// An Identity is an authenticated peer with its rights. It is immutable. The zero value has no rights.
type Identity struct {
	// Name identifies it in logs and metrics.
	Name string
	// Namespaces are what it may subscribe to: db.coll, db.* for a database, * for everything.
	Namespaces []string
	// MaxSubscriptions bounds the subscriptions of all its connections to a node; 0 means no limit.
	MaxSubscriptions int
	// EventsPerSecond and BytesPerSecond bound what is sent to all its connections to a node; 0 means no limit.
	EventsPerSecond, BytesPerSecond int
	// Expires is when its credentials expire; zero means never.
	Expires time.Time

	key   string                    // of its account: names of tokens, subjects and JWTs are distinct
	again func() (*Identity, error) // verifies the credentials again; nil if there are none
}

// everything is the pattern of all namespaces.
const everything = "*"

// Anonymous returns the identity of everybody if nothing is configured: all rights, no limits.
func Anonymous() *Identity {
	return &Identity{Name: anonymous, Namespaces: []string{everything}, key: anonymous}
}

// Owner is how the identity is called where what belongs to it is kept, or is shared fairly. A JWT's subject is never that of a listed identity.
// It is empty for the anonymous identity.
func (i *Identity) Owner() string {
	if i == nil || i.key == anonymous {
		return ""
	}
	name := ownerEscaper.Replace(i.Name)
	if strings.HasPrefix(i.key, jwtKey) {
		name = jwtKey + name
	}
	return name
}

// Subscriber qualifies the name of a subscriber by the identity that it belongs to: identity/name. The first slash separates them. Names of the
// anonymous identity, and an empty name, stay as they are.
func (i *Identity) Subscriber(name string) string {
	owner := i.Owner()
	if owner == "" || name == "" {
		return name
	}
	return owner + "/" + name
}

const (
	anonymous = "anonymous"
	jwtKey    = "jwt:"
)

// ownerEscaper leaves no slash in an identity's part of a name, nor a colon, which says where it is from.
var ownerEscaper = strings.NewReplacer("%", "%25", "/", "%2F", ":", "%3A") //nolint:gochecknoglobals // constant

// Allows reports whether a subscription to the namespace is allowed. An empty db or coll means several collections and requires the right
// to everything.
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

// Permit is Allows with a fault that names the missing right.
func (i *Identity) Permit(db, coll string) error {
	switch {
	case i.Allows(db, coll):
		return nil
	case i == nil:
		return fault.Newf(fault.AccessForbidden, "the peer is not authenticated")
	case db == "" || coll == "":
		return fault.Newf(fault.AccessForbidden, "%q may subscribe to single collections only: name db and coll", i.Name)
	}
	return fault.Newf(fault.AccessForbidden, "%q may not subscribe to %q", i.Name, db+"."+coll)
}

// sameRights reports whether two identities have the same name and rights.
func (i *Identity) sameRights(j *Identity) bool {
	return i.key == j.key && i.Name == j.Name && slices.Equal(i.Namespaces, j.Namespaces) && i.MaxSubscriptions == j.MaxSubscriptions &&
		i.EventsPerSecond == j.EventsPerSecond && i.BytesPerSecond == j.BytesPerSecond
}

const (
	maxName       = 256
	maxNamespaces = 1000
	maxLimit      = 1 << 40
)

// check returns why an identity is invalid, so that a typing error never changes rights silently.
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
