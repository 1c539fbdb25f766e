package change

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// reads says by definition whether a coverage reads an operation on a collection.
func (c Coverage) reads(db, coll, op string) bool {
	in := len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, db+"."+coll) || slices.Contains(c.Namespaces, db+".*")
	return in && (len(c.Operations) == 0 || slices.Contains(c.Operations, op))
}

// What is said of coverages is held against every change that there can be.
func TestCoverageAgreesWithWhatIsRead(t *testing.T) {
	dbs, colls := []string{"a", "b", "c"}, []string{"x", "y", "z"} // nothing names c or z, so that `everything` is more than all names
	names, ops := []string{"a.x", "a.y", "a.*", "b.x", "b.*"}, []string{"insert", "update", "delete"}
	source := rand.New(rand.NewPCG(1, 2))
	some := func(of []string) (all []string) {
		if source.IntN(3) == 0 {
			return nil
		}
		for len(all) == 0 {
			for _, s := range of {
				if source.IntN(2) == 0 {
					all = append(all, s)
				}
			}
		}
		return all
	}
	draw := func() Coverage { return Coverage{Namespaces: some(names), Operations: some(ops)} }
	for range 20_000 {
		c, before, between := draw(), draw(), draw()
		union, covers := before.Union(between), true
		dropped, lapsed := c.Dropped(before, between)
		told, missing := Coverage{Namespaces: dropped}, false
		for _, db := range dbs {
			for _, coll := range colls {
				for _, op := range []string{"insert", "update", "replace", "delete"} {
					covers = covers && (c.reads(db, coll, op) || !before.reads(db, coll, op))
					if (before.reads(db, coll, op) || between.reads(db, coll, op)) && !union.reads(db, coll, op) {
						t.Fatalf("the union of %v and %v is %v, without %s.%s", before, between, union, db, coll)
					}
					if lost := c.reads(db, coll, op) && before.reads(db, coll, op) && !between.reads(db, coll, op); lost {
						missing = true
						if !lapsed || !told.reads(db, coll, op) {
							t.Fatalf("%v, %v, then %v: %s of %s.%s is missing in %v", before, between, c, op, db, coll, dropped)
						}
					}
				}
			}
		}
		if got := c.Covers(before); got && !covers {
			t.Fatalf("%v covers %v", c, before)
		}
		if slices.Equal(c.Operations, before.Operations) && covers && !c.Covers(before) {
			t.Fatalf("%v does not cover %v", c, before)
		}
		if lapsed != missing && slices.Equal(c.Operations, before.Operations) && slices.Equal(c.Operations, between.Operations) {
			t.Fatalf("%v, %v, then %v: dropped %v", before, between, c, dropped)
		}
	}
}
