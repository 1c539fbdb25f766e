package match

import (
	"fmt"
	"slices"

	"github.com/mongostream/streamer/change"
)

// A Selector selects events by database, collection and operation; an empty field selects all. An
// event of a whole database (dropDatabase) or of everything (invalidate) concerns every collection
// in it and is selected with any of them. A rename is selected by its source or its target.
type Selector struct {
	DB, Coll string
	// Ops are operations; if set, collection-level events are selected only if listed.
	Ops []change.Op
}

// ParseOps parses MongoDB's names of operations.
func ParseOps(names []string) ([]change.Op, error) {
	ops := make([]change.Op, 0, len(names))
	for _, name := range names {
		op, ok := change.ParseOp(name)
		if !ok {
			return nil, fmt.Errorf("unknown operation %q", name)
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// wants reports whether an operation is selected.
func (s *Selector) wants(op change.Op) bool { return len(s.Ops) == 0 || slices.Contains(s.Ops, op) }

// reaches reports whether the event concerns one of the namespaces.
func (s *Selector) reaches(e *change.Event) bool {
	return s.fits(e.DB(), e.Coll()) || len(e.ToDB()) > 0 && s.fits(e.ToDB(), e.ToColl())
}

func (s *Selector) fits(db, coll []byte) bool {
	return (s.DB == "" || len(db) == 0 || string(db) == s.DB) && (s.Coll == "" || len(coll) == 0 || string(coll) == s.Coll)
}
