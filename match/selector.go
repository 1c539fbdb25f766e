package match

import (
	"fmt"
	"slices"

	"github.com/mongostream/streamer/change"
)

// A Selector selects events by database, collection and operation; an empty field selects all. An event of a whole database
// (dropDatabase) or of everything (invalidate) is selected wherever the database fits, because it concerns every collection
// in it; a rename is selected by its source or by its target.
type Selector struct {
	DB, Coll string
	// Ops are operations; with some given, collection-level events are selected only if named.
	Ops []change.Op
}

// ParseOps reads MongoDB's names of operations.
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

// Selects reports whether the event is wanted.
func (s *Selector) Selects(e *change.Event) bool {
	return s.wants(e.Op()) && s.reaches(e)
}

func (s *Selector) wants(op change.Op) bool { return len(s.Ops) == 0 || slices.Contains(s.Ops, op) }

// reaches reports whether the event concerns one of the namespaces.
func (s *Selector) reaches(e *change.Event) bool {
	return s.fits(e.DB(), e.Coll()) || len(e.ToDB()) > 0 && s.fits(e.ToDB(), e.ToColl())
}

func (s *Selector) fits(db, coll []byte) bool {
	return (s.DB == "" || len(db) == 0 || string(db) == s.DB) && (s.Coll == "" || len(coll) == 0 || string(coll) == s.Coll)
}
