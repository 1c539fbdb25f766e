package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/input"
	"github.com/mongostream/streamer/streamer"
)

// An Identity is an authenticated peer with its rights. It is immutable. The zero value has no
// rights.
type Identity struct {
	// Name identifies it in logs and metrics.
	Name string
	// Namespaces are the namespaces that it may subscribe to: db.coll, db.* for a database, * for
	// everything.
	Namespaces []string
	// MaxSessions bounds its sessions at a node over gRPC and SSE together, MaxConnections its
	// connections with a call, MaxNotices its streams of notices, and StartsPerSecond how many
	// sessions and requests it begins; 0 means the Defaults of Accounts.
	MaxSessions, MaxConnections, MaxNotices, StartsPerSecond int
	// MaxSubscriptions bounds the subscriptions of all its connections to a node; 0 means no limit.
	MaxSubscriptions int
	// EventsPerSecond and BytesPerSecond bound the traffic to all its connections to a node; 0
	// means no limit.
	EventsPerSecond, BytesPerSecond int
	// Expires is when its credentials expire; zero means never.
	Expires time.Time

	key   string                    // of its account: names of tokens, subjects and JWTs are distinct
	again func() (*Identity, error) // verifies the credentials again; nil if there are none
}

// everything is the pattern of all namespaces.
const everything = "*"

// anonymousKey is the key of the anonymous account.
const anonymousKey = "anonymous"

// Anonymous returns the identity of every client if nothing is configured: all rights, no limits.
func Anonymous() *Identity {
	return &Identity{Name: anonymousKey, Namespaces: []string{everything}, key: anonymousKey}
}

// Owner is how the identity is called where what belongs to it is kept, or is shared fairly. A
// JWT's subject is never that of a listed identity. It is empty for the anonymous identity.
func (i *Identity) Owner() string {
	if i == nil || i.key == anonymousKey {
		return ""
	}
	name := ownerEscaper.Replace(i.Name)
	if strings.HasPrefix(i.key, jwtKey) {
		name = jwtKey + name
	}
	return name
}

// Subscriber qualifies the name of a subscriber by the identity that it belongs to: identity/name.
// The first slash separates them. Names of the anonymous identity, and an empty name, stay as they
// are.
func (i *Identity) Subscriber(name string) string {
	owner := i.Owner()
	if owner == "" || name == "" {
		return name
	}
	return owner + "/" + name
}

// jwtKey begins the keys of identities that a JWT proves.
const jwtKey = "jwt:"

// ownerEscaper leaves no slash in an identity's part of a name, nor a colon, which says where it is
// from.
var ownerEscaper = strings.NewReplacer("%", "%25", "/", "%2F", ":", "%3A") //nolint:gochecknoglobals // constant

// Allows reports whether a subscription to the namespace is allowed. An empty coll means all
// collections of the database and requires the right to it; an empty db requires the right to
// everything.
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
		return dot && db != "" && d == db && (c == everything || coll != "" && c == coll)
	})
}

// Operates reports whether the identity has the right to everything. Only such an identity may see
// other subscribers, members and the actions of operators.
func (i *Identity) Operates() bool { return i.Allows("", "") }

// Readable returns the part of a list of namespaces (db.coll, or db.* for a database) that the
// identity may know of. An empty list means everything, which it may know of without names. some is
// false if the list names nothing that the identity may read.
func (i *Identity) Readable(namespaces []string) (readable []string, some bool) {
	if i.Operates() || len(namespaces) == 0 {
		return namespaces, i != nil
	}
	for _, name := range namespaces {
		db, coll, _ := strings.Cut(name, ".")
		switch {
		case i.Allows(db, coll):
			readable = append(readable, name)
		case i != nil && coll == everything: // of the database only the identity's own namespaces
			for _, pattern := range i.Namespaces {
				if strings.HasPrefix(pattern, db+".") && !slices.Contains(readable, pattern) {
					readable = append(readable, pattern)
				}
			}
		}
	}
	return readable, len(readable) > 0
}

// Permit is Allows with a fault that names the missing right.
func (i *Identity) Permit(db, coll string) error {
	switch {
	case i.Allows(db, coll):
		return nil
	case i == nil:
		return fault.Newf(fault.AccessForbidden, "the peer is not authenticated")
	case db == "":
		return fault.Newf(fault.AccessForbidden, "%q may not subscribe to all databases: name db", i.Name)
	case coll == "" && slices.ContainsFunc(i.Namespaces, func(pattern string) bool { return strings.HasPrefix(pattern, db+".") }):
		return fault.Newf(fault.AccessForbidden, "%q may subscribe to single collections of %q only: name coll", i.Name, db)
	case coll == "":
		return fault.Newf(fault.AccessForbidden, "%q may not subscribe to %q", i.Name, db)
	}
	return fault.Newf(fault.AccessForbidden, "%q may not subscribe to %q", i.Name, db+"."+coll)
}

// sameRights reports whether two identities have the same name and rights.
func (i *Identity) sameRights(j *Identity) bool {
	return i.key == j.key && i.Name == j.Name && slices.Equal(i.Namespaces, j.Namespaces) &&
		slices.EqualFunc(i.limits(), j.limits(), func(a, b limit) bool { return *a.value == *b.value })
}

const (
	maxNamespaces = 1000
	maxLimit      = 1 << 40
)

// check returns why an identity is invalid, so that a typing error never changes rights silently.
func (i *Identity) check() error {
	switch {
	case i.Name == "" || !input.IsName(i.Name):
		return fmt.Errorf("the name must have 1 to %d bytes of printable UTF-8", input.MaxName)
	case streamer.Reserved(i.Subscriber("x")):
		return fmt.Errorf("the name %q is that of sinks' subscribers", i.Name)
	case len(i.Namespaces) == 0:
		return errors.New("no namespace is allowed: give db.coll, db.* or *")
	case len(i.Namespaces) > maxNamespaces:
		return fmt.Errorf("more than %d namespaces", maxNamespaces)
	}
	for _, l := range i.limits() {
		if *l.value < 0 || *l.value > maxLimit {
			return fmt.Errorf("a limit must be between 0 (none) and %d", maxLimit)
		}
	}
	for _, pattern := range i.Namespaces {
		if pattern != everything && !namesCollections(pattern) {
			return fmt.Errorf("namespace %q: must be db.coll, db.* or *", pattern)
		}
	}
	return nil
}

// namesCollections reports whether a pattern is db.coll or db.*.
func namesCollections(pattern string) bool {
	db, coll, dot := strings.Cut(pattern, ".")
	switch {
	case !dot, db == "", coll == "", strings.Contains(db, "*"):
		return false
	}
	return coll == everything || !strings.Contains(coll, "*")
}
