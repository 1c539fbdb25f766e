package change

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Coverage says which changes a stream reads. A position of the stream says nothing of other
// changes.
type Coverage struct {
	// Namespaces are `db.coll` or `db.*`; empty means all.
	Namespaces []string `json:"namespaces,omitempty"`
	// Operations are insert, update, replace and delete; empty means all.
	Operations []string `json:"operations,omitempty"`
}

// Covers reports whether c reads every change that d reads.
func (c Coverage) Covers(d Coverage) bool { return len(c.beyond(d)) == 0 }

// beyond returns the namespaces in which d reads changes that c does not read; `*` is all of them.
func (c Coverage) beyond(d Coverage) []string {
	if !c.coversOperations(d) {
		return d.namespaces()
	}
	return slices.DeleteFunc(slices.Clone(d.namespaces()), c.coversNamespace)
}

// Dropped returns the namespaces in which all of these are true: before read changes, c reads them
// again, and between did not read them. Some is false where there are none. No namespaces are all
// of them.
func (c Coverage) Dropped(before, between Coverage) (namespaces []string, some bool) {
	both := c.common(before)
	missing := between.beyond(both)
	if len(both.namespaces()) == 0 || len(missing) == 0 {
		return nil, false
	}
	for i, ns := range missing {
		missing[i] = reach(ns)
	}
	if slices.Contains(missing, everything) {
		return nil, true
	}
	slices.Sort(missing)
	return slices.Compact(missing), true
}

// Union returns a coverage that covers both.
func (c Coverage) Union(d Coverage) Coverage {
	both := Coverage{}
	if len(c.Namespaces) > 0 && len(d.Namespaces) > 0 {
		both.Namespaces = sortedUnion(c.Namespaces, d.Namespaces)
	}
	if len(c.Operations) > 0 && len(d.Operations) > 0 {
		both.Operations = sortedUnion(c.Operations, d.Operations)
	}
	return both
}

// everything is the name for all namespaces.
const everything = "*"

// none is the coverage of nothing: no namespace has this name.
const none = ""

// maxNames bounds the namespaces of a bounded coverage, in bytes.
const maxNames = 2 << 10

// hashed is the prefix of a name for a list of collections: `db.$hash` for some of a database,
// `$hash` for some of many databases. MongoDB allows no such name.
const hashed = "$"

// Bounded returns the coverage as heartbeats and checkpoints keep it. In a long list of namespaces,
// the collections of each database are replaced by a hash of their names, and if that is still too
// long, all of them are. A bounded coverage covers another one only if it certainly reads all
// changes of the other; for two different long lists that is unknown.
func (c Coverage) Bounded() *Coverage { return c.within(maxNames) }

// within returns the coverage with at most the given bytes of namespaces, or one hash.
func (c Coverage) within(limit int) *Coverage {
	c = Coverage{Namespaces: slices.Clone(c.Namespaces), Operations: slices.Clone(c.Operations)}
	slices.Sort(c.Namespaces)
	c.Namespaces = slices.Compact(c.Namespaces)
	if c.fits(limit) {
		return &c
	}
	collections := make(map[string][]string) // by database
	for _, ns := range c.Namespaces {
		db, _, _ := strings.Cut(ns, ".")
		collections[db] = append(collections[db], ns)
	}
	c.Namespaces = nil
	for _, db := range slices.Sorted(maps.Keys(collections)) {
		c.Namespaces = append(c.Namespaces, hashOf(db+".", collections[db]))
	}
	if !c.fits(limit) {
		c.Namespaces = []string{hashOf("", c.Namespaces)}
	}
	return &c
}

func (c Coverage) fits(limit int) bool { return len(strings.Join(c.Namespaces, ",")) <= limit }

// hashOf returns the name for a sorted list; a single name and `db.*`, a whole database, stay as
// they are.
func hashOf(prefix string, names []string) string {
	switch {
	case len(names) == 1:
		return names[0]
	case slices.Contains(names, prefix+everything):
		return prefix + everything
	}
	sum := sha256.Sum256([]byte(strings.Join(names, ",")))
	return fmt.Sprintf("%s%s%x", prefix, hashed, sum[:8])
}

// reach returns the namespace, or for a hash the narrowest namespace that has all of its list.
func reach(ns string) string {
	prefix, _, isHash := strings.Cut(ns, hashed)
	if isHash {
		return prefix + everything
	}
	return ns
}

// covers reports whether one namespace certainly has all collections of another one.
func covers(a, b string) bool {
	db, whole := strings.CutSuffix(a, everything)
	return a == b || whole && strings.HasPrefix(b, db)
}

// mayRead reports whether c may read a part of the namespace, which hashes leave open.
func (c Coverage) mayRead(ns string) bool {
	return slices.ContainsFunc(c.namespaces(), func(own string) bool {
		certain := covers(own, ns) || covers(ns, own)
		possible := covers(reach(own), reach(ns)) || covers(reach(ns), reach(own))
		return possible && !certain
	})
}

// common returns what both read: of lists that are hashed, all that they may both read, in the
// words of c.
func (c Coverage) common(d Coverage) Coverage {
	var both Coverage
	for _, ns := range c.namespaces() {
		if d.coversNamespace(ns) || d.mayRead(ns) {
			both.Namespaces = append(both.Namespaces, ns)
		}
	}
	for _, ns := range d.namespaces() {
		if c.coversNamespace(ns) {
			both.Namespaces = append(both.Namespaces, ns)
		}
	}
	switch {
	case len(both.Namespaces) == 0:
		both.Namespaces = []string{none}
	case slices.Contains(both.Namespaces, everything):
		both.Namespaces = nil
	}
	switch {
	case len(c.Operations) == 0:
		both.Operations = d.Operations
	case len(d.Operations) == 0:
		both.Operations = c.Operations
	default:
		both.Operations = slices.DeleteFunc(slices.Clone(c.Operations), func(op string) bool { return !slices.Contains(d.Operations, op) })
		if len(both.Operations) == 0 {
			both.Namespaces = []string{none}
		}
	}
	return both
}

// namespaces returns the namespaces: `*` for everything, none for an empty coverage.
func (c Coverage) namespaces() []string {
	switch {
	case len(c.Namespaces) == 0:
		return []string{everything}
	case len(c.Namespaces) == 1 && c.Namespaces[0] == none:
		return nil
	}
	return c.Namespaces
}

func (c Coverage) coversNamespace(ns string) bool {
	return len(c.Namespaces) == 0 || slices.ContainsFunc(c.namespaces(), func(own string) bool { return covers(own, ns) })
}

func (c Coverage) coversOperations(d Coverage) bool {
	if len(c.Operations) == 0 {
		return true
	}
	return len(d.Operations) > 0 && !slices.ContainsFunc(d.Operations, func(op string) bool { return !slices.Contains(c.Operations, op) })
}

func sortedUnion(a, b []string) []string {
	both := slices.Concat(a, b)
	slices.Sort(both)
	return slices.Compact(both)
}
