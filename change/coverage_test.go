package change

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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

// Long lists are hashed. A hash covers only what it certainly covers, and hides no loss.
func TestHashedCoverageIsNeverTakenForMore(t *testing.T) {
	names := []string{"a.x", "a.y", "a.z", "a.*", "b.x", "b.y", "c.x", "c.*"}
	source := rand.New(rand.NewPCG(3, 4))
	draw := func() (c Coverage) {
		for _, ns := range names {
			if source.IntN(3) == 0 {
				c.Namespaces = append(c.Namespaces, ns)
			}
		}
		source.Shuffle(len(c.Namespaces), func(i, j int) { c.Namespaces[i], c.Namespaces[j] = c.Namespaces[j], c.Namespaces[i] })
		return c
	}
	for range 20_000 {
		limit := source.IntN(30)
		c, before, between := draw(), draw(), draw()
		hc, hbefore, hbetween := c.within(limit), before.within(limit), between.within(limit)
		if hc.Covers(*hbefore) && !c.Covers(before) {
			t.Fatalf("%v covers %v, which stand for %v and %v", hc, hbefore, c, before)
		}
		if again := (Coverage{Namespaces: slices.Sorted(slices.Values(c.Namespaces))}).within(limit); !hc.Covers(*again) {
			t.Fatalf("%v does not cover %v, of the same list %v", hc, again, c)
		}
		dropped, lapsed := hc.Dropped(*hbefore, *hbetween)
		told := Coverage{Namespaces: dropped}
		for _, ns := range []string{"a.x", "a.other", "b.x", "b.other", "c.x", "c.other", "d.other"} {
			db, coll, _ := strings.Cut(ns, ".")
			lost := c.reads(db, coll, "") && before.reads(db, coll, "") && !between.reads(db, coll, "")
			if lost && (!lapsed || !told.reads(db, coll, "")) {
				t.Fatalf("%v, %v, then %v, within %d bytes: %s is missing in %v", before, between, c, limit, ns, dropped)
			}
		}
		if told, lapsed := hc.Dropped(*hbefore, *hc); lapsed {
			t.Fatalf("%v, then %v, which goes on: told of %v", before, c, told)
		}
	}
}

// Whoever keeps a coverage keeps little, however long its list is; a whole database still covers
// a list of its collections.
func TestLongCoverageIsBounded(t *testing.T) {
	var one, many []string
	for i := range 10_000 {
		one, many = append(one, fmt.Sprint("shop.collection", i)), append(many, fmt.Sprint("tenant", i, ".orders"))
	}
	for _, names := range [][]string{one, many, append(slices.Clone(one), many...)} {
		whole := Coverage{Namespaces: names}
		bounded, fewer := whole.Bounded(), Coverage{Namespaces: names[1:]}.Bounded()
		if size := len(strings.Join(bounded.Namespaces, ",")); size > maxNames {
			t.Errorf("%d bytes of names", size)
		}
		if bounded.Covers(*fewer) || fewer.Covers(*bounded) || !bounded.Covers(*whole.Bounded()) || !(Coverage{}).Covers(*bounded) {
			t.Errorf("%v beside %v", bounded, fewer)
		}
	}
	if bounded := (Coverage{Namespaces: one}).Bounded(); !(Coverage{Namespaces: []string{"shop.*"}}).Covers(*bounded) {
		t.Errorf("all of shop does not cover %v", bounded)
	}
}
