package change

import (
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

// everything is the namespace that stands for all of them.
const everything = "*"

// none is the coverage of nothing: no namespace has this name.
const none = ""

// common returns what both read.
func (c Coverage) common(d Coverage) Coverage {
	var both Coverage
	for _, ns := range c.namespaces() {
		if d.coversNamespace(ns) {
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

// namespaces returns what is read: `*` for everything, nothing for a coverage of nothing.
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
	if len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, ns) {
		return true
	}
	db, _, found := strings.Cut(ns, ".")
	return found && slices.Contains(c.Namespaces, db+".*")
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
