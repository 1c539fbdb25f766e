package main

import (
	"fmt"
	"slices"
	"testing"
)

func sent(op, coll, id string, n, v int) string {
	const change = `{"operationType":%[1]q,"ns":{"db":"judged","coll":%[2]q},"documentKey":{"_id":%[3]q},` +
		`"fullDocument":{"_id":%[3]q,"home":"a","born":1,"n":%[4]d,"v":%[5]d},"updateDescription":{"updatedFields":{"n":%[4]d}}}`
	return fmt.Sprintf(change, op, coll, id, n, v)
}

func gone(op, coll, id string) string {
	return fmt.Sprintf(`{"operationType":"%s","ns":{"db":"judged","coll":"%s"},"documentKey":{"_id":"%s"}}`, op, coll, id)
}

// lookedUpInVain is an update of a document that was gone when it was looked up.
func lookedUpInVain(coll, id string, n int) string {
	const change = `{"operationType":"update","ns":{"db":"judged","coll":%q},"documentKey":{"_id":%q},"fullDocument":null,"updateDescription":{"updatedFields":{"n":%d}}}`
	return fmt.Sprintf(change, coll, id, n)
}

// Each class of what can be wrong with a copy is told, and nothing is told of a copy that is right.
// MongoDB has x with n=5 and v=2, which matches, and y with n=6 and v=3, which does not.
func TestJudgeTellsWhatIsWrong(t *testing.T) {
	marker := sent("insert", "a", "marker-1", 9, 2)
	right := []string{sent("insert", "a", "x", 1, 2), sent("update", "a", "x", 5, 2), sent("insert", "a", "y", 2, 2), gone("left", "a", "y"), marker}
	with := func(more ...string) []string { return append(slices.Clone(right), more...) }
	for name, tc := range map[string]struct {
		sent  []string
		lost  bool
		moved bool // before anything was sent
		class []string
		ops   []string
	}{
		"right":                        {sent: right},
		"missing":                      {sent: right[2:], class: []string{"missing"}},
		"stale":                        {sent: append(right[:1:1], right[2:]...), class: []string{"stale"}},
		"differs":                      {sent: append([]string{sent("replace", "a", "x", 5, 4)}, right[2:]...), class: []string{"differs"}},
		"superfluous":                  {sent: append(right[:3:3], marker), class: []string{"superfluous"}},
		"resurrected":                  {sent: with(sent("insert", "a", "z", 3, 2)), class: []string{"resurrected"}},
		"deleted":                      {sent: with(sent("insert", "a", "z", 3, 2), gone("delete", "a", "z"))},
		"older after newer":            {sent: append([]string{right[1], right[0]}, with(right[1])[2:]...), class: []string{"order"}},
		"again after a delete":         {sent: with(sent("insert", "a", "z", 3, 2), gone("delete", "a", "z"), sent("snapshot", "a", "z", 3, 2), gone("delete", "a", "z")), class: []string{"order"}},
		"gone when it was looked up":   {sent: with(sent("insert", "a", "z", 3, 2), gone("delete", "a", "z"), lookedUpInVain("a", "z", 2))},
		"dropped":                      {sent: with(sent("insert", "vol", "z", 3, 2), gone("drop", "vol", ""))},
		"not done":                     {sent: right, lost: true, class: []string{"not done"}},
		"late":                         {sent: right[:4], class: []string{"late"}},
		"an operation that is hidden":  {sent: append(right[:1:1], right[2:]...), ops: []string{"insert", "delete"}},
		"an operation that must come":  {sent: append(right[:1:1], right[2:]...), ops: []string{"insert", "update", "delete"}, class: []string{"stale"}},
		"what existed before it began": {sent: right[2:], ops: []string{"update", "delete"}, class: []string{"missing"}},
		"deleted and back, hidden":     {sent: append([]string{gone("delete", "a", "x")}, marker), ops: []string{"replace", "delete"}, moved: true},
		"deleted for no reason":        {sent: append([]string{gone("delete", "a", "x")}, marker), ops: []string{"replace", "delete"}, class: []string{"missing"}},
	} {
		r := filters()[2]
		r.leaves, r.ops = true, tc.ops
		c := newReplica(&cluster{}, "test", name, r)
		c.since = 1
		c.marked("done", "start", nil)
		if tc.moved {
			c.moved()
		}
		for _, data := range tc.sent {
			if err := c.apply([]byte(data)); err != nil {
				t.Fatal(err)
			}
		}
		if tc.lost {
			c.lost("history_lost", []string{"judged.b", "judged.a"})
			c.marked("done", "loss", []string{"judged.b"})
		}
		doc := func(id string, n, v int64) *fact {
			f := &fact{ns: "judged.a", key: `judged.a "` + id + `"`, n: n, born: 1, updated: n}
			if err := parse([]byte(fmt.Sprintf(`{"_id":%q,"home":"a","born":1,"n":%d,"v":%d}`, id, n, v)), &f.doc); err != nil {
				t.Fatal(err)
			}
			return f
		}
		v := c.judge([]*fact{doc("x", 5, 2), doc("y", 6, 3), doc("marker-1", 9, 2)}, 1, []string{"a"})
		if v.good() != (tc.class == nil) || tc.class != nil && !slices.Equal(v.class(), tc.class) {
			t.Errorf("%s: good %t, %v: %v", name, v.good(), v.class(), v.differences)
		}
	}
}

// After a loss only what comes again is kept, of the collections that the loss was of.
func TestCopyDropsWhatDoesNotComeAgain(t *testing.T) {
	c := newReplica(&cluster{}, "test", "c", filters()[0])
	for _, data := range []string{sent("insert", "a", "x", 1, 2), sent("insert", "a", "y", 2, 2), sent("insert", "b", "z", 3, 2)} {
		if err := c.apply([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	c.lost("history_lost", []string{"judged.a"})
	if err := c.apply([]byte(sent("snapshot", "a", "y", 2, 2))); err != nil {
		t.Fatal(err)
	}
	c.marked("done", "loss", []string{"judged.a"})
	if len(c.docs) != 2 || c.docs[`judged.a "x"`] != nil {
		t.Errorf("%v", c.docs)
	}
}

// A loss of the whole database concerns copies of one collection, too.
func TestLossOfADatabaseConcernsItsCollections(t *testing.T) {
	for _, coll := range []string{"", "a"} {
		c := newReplica(&cluster{}, "grpc", "copy", rule{coll: coll})
		c.docs[database+".a 1"] = &held{n: 1}
		c.lost("history_lost", []string{database + ".*"})
		c.marked("done", "loss", nil)
		if len(c.docs) > 0 || len(c.missing) > 0 {
			t.Errorf("%q: %d documents, missing %v", coll, len(c.docs), c.missing)
		}
	}
}
