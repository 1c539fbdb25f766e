package stream

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestFragmentsOutOfPlaceAreRefused(t *testing.T) {
	fragment := func(n, of int32) bson.Raw {
		b, err := bson.Marshal(bson.D{{Key: "_id", Value: bson.D{{Key: "_data", Value: "82"}}}, {Key: "splitEvent", Value: bson.D{{Key: "fragment", Value: n}, {Key: "of", Value: of}}}})
		if err != nil {
			t.Fatal(err)
		}
		if !isFragment(b) {
			t.Fatal("not seen as a fragment")
		}
		return b
	}
	for name, parts := range map[string][][2]int32{
		"the second first": {{2, 2}}, "one left out": {{1, 3}, {3, 3}}, "another event's": {{1, 2}, {2, 3}},
	} {
		var a assembly
		var err error
		for _, p := range parts {
			_, err = a.add(fragment(p[0], p[1]))
		}
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	var a assembly
	for _, p := range [][2]int32{{1, 3}, {2, 3}, {1, 2}} { // begun anew
		if event, err := a.add(fragment(p[0], p[1])); err != nil || event != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
	if event, err := a.add(fragment(2, 2)); err != nil || event == nil || a.pending {
		t.Errorf("%v", err)
	}
	if isFragment([]byte{5, 0, 0, 0, 0}) || isFragment(nil) {
		t.Error("nothing is seen as a fragment")
	}
}
