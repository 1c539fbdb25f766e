package wiring

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/health"
	"github.com/mongostream/streamer/notice"
)

// One problem is one notice, another one when it becomes critical, and one end, whoever leads while
// it lasts; a node that is cut off tells no end; what merely starts or stops is not told.
func TestProblemsAreToldOnce(t *testing.T) {
	board := notice.NewBoard(notice.Config{})
	problem := func(subject string, code fault.Code, severity health.Severity) health.Verdict {
		return health.Verdict{Problems: []health.Problem{{Subject: subject, Code: code, Severity: severity, Cause: "It is wrong."}}}
	}
	urgent := problem("sink/out", fault.SinkTarget, health.Critical)
	sink, halted := problem("sink/out", fault.SinkTarget, health.Warning), problem("sink/out", fault.SinkHalted, health.Critical)
	late, mongo := problem("sink/out", fault.SubscriberLate, health.Warning), problem("mongodb", fault.MongoUnreachable, health.Critical)
	mongo.Explained = []string{"sink/out"}
	var first, second teller
	at := time.Unix(1000, 0)
	for i, s := range []struct {
		teller        *teller
		verdict       health.Verdict
		leads, cutOff bool
		want          string // what is posted
	}{
		{&first, problem("start", fault.NodeStarting, health.Info), true, false, ""},
		{&second, sink, false, false, ""},
		{&first, sink, true, false, "problem sink/out"},
		{&first, sink, true, false, ""},
		{&second, sink, true, false, ""}, // it leads now
		{&second, urgent, true, false, "problem sink/out"},
		{&second, urgent, true, false, ""},
		{&first, sink, true, false, ""}, // less urgent
		{&first, urgent, true, false, ""},
		{&second, halted, true, false, "problem sink/out"},
		{&second, health.Verdict{}, true, false, ""},
		{&second, halted, true, false, ""}, // it was not over
		{&second, health.Verdict{}, true, false, ""},
		{&second, health.Verdict{}, true, false, ""},
		{&first, health.Verdict{}, false, false, ""},
		{&second, health.Verdict{}, true, false, "problem_over sink/out"},
		{&second, health.Verdict{}, true, false, ""},
		{&second, problem("clients", fault.LogHistoryLost, health.Warning), true, false, "problem clients"},
		{&second, health.Verdict{}, true, false, ""},
		{&second, health.Verdict{}, true, false, ""},
		{&second, health.Verdict{}, true, false, "problem_over clients"},
		{&second, problem("clients", fault.LogHistoryLost, health.Warning), true, false, ""}, // whoever begins it again
		{&second, health.Verdict{}, true, false, ""},
		{&first, problem("etcd", fault.EtcdUnreachable, health.Critical), false, true, "problem etcd"},
		{&first, health.Verdict{}, false, true, ""},
		{&first, health.Verdict{}, true, true, ""},
		{&first, health.Verdict{}, true, false, ""},
		{&first, health.Verdict{}, true, false, ""},
		{&first, health.Verdict{}, true, false, "problem_over etcd"},
		{&first, late, true, false, "problem sink/out"},
		{&first, mongo, true, false, "problem mongodb"},
		{&first, mongo, true, false, ""}, // what it explains is not over
		{&first, mongo, true, false, ""},
		{&first, late, true, false, ""},
		{&first, late, true, false, ""},
		{&first, late, true, false, "problem_over mongodb"},
		{&first, late, true, false, ""},
		{&first, health.Verdict{}, true, false, ""},
		{&first, health.Verdict{}, true, false, ""},
		{&first, health.Verdict{}, true, false, "problem_over sink/out"},
	} {
		before := s.teller.last
		posted, _ := board.Since(0)
		s.teller.step(at.Add(time.Duration(i)*time.Second), s.verdict, board, s.leads, s.cutOff)
		now, _ := board.Since(0)
		got := ""
		for _, n := range now[len(posted):] {
			if err := notice.Check(n); err != nil {
				t.Error(err)
			}
			got += fmt.Sprint(n.Kind, " ", n.Fields["subject"])
		}
		if got != s.want {
			t.Errorf("step %d (after notice %d): %q, want %q", i, before, got, s.want)
		}
	}
	if all, _ := board.Since(0); !slices.ContainsFunc(all, func(n notice.Notice) bool { return n.Level == notice.Critical }) {
		t.Error("no problem is critical")
	}
}

// A node that stood still finds itself cut off, and is soon back: that is told only if it stays so.
func TestNodeThatIsSoonBackTellsNothing(t *testing.T) {
	since := time.Unix(1000, 0)
	cut := health.Verdict{Problems: []health.Problem{{Subject: "membership", Code: fault.NodeDetached, Severity: health.Critical, Cause: "It is cut off.", Since: since}}}
	for after, want := range map[time.Duration]int{detachedToldAfter - time.Millisecond: 0, detachedToldAfter: 1} {
		board := notice.NewBoard(notice.Config{})
		var t1 teller
		t1.step(since, cut, board, false, true)
		t1.step(since.Add(after), cut, board, false, true)
		t1.step(since.Add(after+time.Second), health.Verdict{}, board, false, false)
		if all, _ := board.Since(0); len(all) != want {
			t.Errorf("cut off for %v: %+v", after, all)
		}
	}
}

// A loss is told by its own notice; that it is not acknowledged yet is told where nothing has told
// the loss, as that of a collection which was renamed, and where the notice is of another loss.
func TestLossIsToldByItsEventAlone(t *testing.T) {
	since := time.Now()
	owed := health.Verdict{Problems: []health.Problem{{Subject: "sink/out", Code: fault.LogHistoryLost, Severity: health.Critical, Cause: "It owes.", Since: since}}}
	event := func(kind string, channel notice.Channel, subscriber string, at time.Time) notice.Notice {
		return notice.Notice{Kind: kind, Channel: channel, Level: notice.Critical, Text: "lost", At: at, Fields: map[string]any{"subscriber": subscriber}}
	}
	for name, c := range map[string]struct {
		before *notice.Notice
		told   bool
	}{
		"its own":           {new(event(notice.KindSubscriberLoss, notice.Health, "sink/out", since)), false},
		"everybody's":       {new(event(notice.KindResync, notice.Resync, "", since)), false},
		"another one's":     {new(event(notice.KindSubscriberLoss, notice.Health, "sink/other", since)), true},
		"one from long ago": {new(event(notice.KindSubscriberLoss, notice.Health, "sink/out", since.Add(-time.Hour))), true},
		"of a rename":       {new(notice.Notice{Kind: notice.KindResync, Channel: notice.Resync, Level: notice.Info, Text: "renamed", At: since}), true},
		"nobody's":          {nil, true},
	} {
		board := notice.NewBoard(notice.Config{})
		if c.before != nil {
			board.Post(*c.before)
		}
		earlier, _ := board.Since(0)
		var t1 teller
		for _, after := range []time.Duration{0, time.Second, overAfter, time.Minute} {
			t1.step(since.Add(after), owed, board, true, false)
			if after < overAfter {
				if all, _ := board.Since(0); len(all) != len(earlier) {
					t.Errorf("%s: told after %v, before the notice of another node may be here", name, after)
				}
			}
		}
		if all, _ := board.Since(0); len(all) > len(earlier) != c.told || len(all) > len(earlier)+1 {
			t.Errorf("%s: %+v", name, all[len(earlier):])
		}
	}
}
