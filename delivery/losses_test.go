package delivery

import (
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/oplog"
)

// A loss in place of two contains both, whichever ends later.
func TestJoinedLossesContainBoth(t *testing.T) {
	at := func(i uint32) change.Position { return change.At(change.Timestamp{T: 1, I: i}) }
	lost := appendLoss(nil, Loss{From: at(10), To: at(90), Namespaces: []string{"shop.orders"}})
	lost = appendLoss(lost, Loss{From: at(5), To: at(20)})
	for i := range uint32(maxLost - 1) {
		lost = appendLoss(lost, Loss{From: at(100 + i), To: at(101 + i)})
	}
	if both := lost[0]; len(lost) != maxLost || both.From.Compare(at(5)) != 0 || both.To.Compare(at(90)) != 0 || both.Namespaces != nil {
		t.Errorf("%d losses, the first is %+v", len(lost), both)
	}
}

// A loss is none where all partitions that it concerns began with the log.
func TestPartitionsBeginWithTheLog(t *testing.T) {
	at := func(i uint32) change.Position { return change.At(change.Timestamp{T: 1, I: i}) }
	begins := func(i uint32) Place { return Place{At: at(i), Begins: true} }
	stays := func(i uint32) Place { return Place{At: at(i)} }
	ref := func(p Place) Place { return Place{Ref: p.At.Ref(), Begins: p.Begins} }
	for name, test := range map[string]struct {
		rest    Place
		of      Place
		passed  bool
		from    uint32
		to      uint32
		isNone  bool
		several bool // there are several places
	}{
		"all":                        {begins(5), begins(5), false, 5, 20, true, false},
		"all, as a client says":      {begins(5), ref(begins(5)), false, 5, 20, true, true},
		"none":                       {stays(5), stays(5), false, 5, 20, false, false},
		"all but the rest":           {stays(5), begins(5), false, 5, 20, false, false},
		"the rest":                   {begins(5), stays(5), false, 5, 20, false, false},
		"the rest, as a client says": {begins(5), ref(stays(5)), false, 5, 20, false, true},
		"one that is after it":       {begins(5), stays(20), false, 5, 20, true, true},
		"one that is within it":      {begins(5), stays(10), false, 5, 20, false, true},
		"one that was before":        {begins(5), stays(3), false, 3, 20, false, true},
		"at two places":              {begins(5), begins(7), false, 5, 20, true, true},
		"after something was read":   {begins(5), begins(5), false, 6, 20, false, false},
		"after one has read":         {begins(5), begins(7), true, 6, 20, false, true},
	} {
		s := &stream{Session: &Session{}}
		s.startAt(test.rest, map[change.Partition]Place{1: test.of}, 0)
		if (s.seen != nil) != test.several {
			t.Errorf("%s: %v", name, s.seen)
			continue
		}
		if test.passed {
			s.seen.drained(at(6))
		}
		loss := oplog.Loss{From: at(test.from), To: at(test.to)}
		if isNone := s.beginsWith(&loss); isNone != test.isNone {
			t.Errorf("%s: %t", name, isNone)
		}
		loss.Unanswered = true
		if s.beginsWith(&loss) {
			t.Errorf("%s: none, although the retained log may have it", name)
		}
	}
	for range 20 { // whichever is looked at first
		s := &stream{Session: &Session{}}
		s.startAt(stays(20), map[change.Partition]Place{1: begins(5), 2: stays(5)}, 0)
		if s.beginsWith(&oplog.Loss{From: at(5), To: at(20)}) {
			t.Fatal("of two partitions at one place, one has not begun with the log")
		}
	}
}
