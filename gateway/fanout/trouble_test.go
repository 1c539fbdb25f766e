package fanout_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/match"
)

// A filter that fails on every event tells so once a second, with how often it was, and counts every failure; what is looked at again on the way to the live path fails again.
func TestFailuresOfAFilterAreToldOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		w := newWorld(t, fanout.Config{})
		defer w.stop()
		synctest.Wait()
		session, err := w.hub.Open(t.Context(), fanout.SessionConfig{Start: change.Position{}}, []fanout.Subscription{
			filter(t, "broken", match.Filter{Source: `key._id + "x" == "y"`}), filter(t, "too", match.Filter{Source: `key._id + "x" == "z"`}),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go func() {
			for i := range n {
				time.Sleep(10 * time.Millisecond) // five seconds in all
				w.source.Append(inserts(1, int64(100+i))...)
			}
		}()
		told, failures, texts := map[string]int{}, map[string]int{}, map[string][]string{}
		for {
			_, notices, err := session.Receive(ctx)
			if err != nil {
				break
			}
			for _, notice := range notices {
				if notice.Kind != "filter_failed" || notice.Code != fault.FilterEvaluation {
					t.Errorf("%+v", notice)
				}
				count := 1
				_, _ = fmt.Sscanf(notice.Text, "%d events", &count) // one where it does not say
				told[notice.Subscription]++
				failures[notice.Subscription] += count
				texts[notice.Subscription] = append(texts[notice.Subscription], notice.Text)
			}
		}
		for _, id := range []string{"broken", "too"} {
			if failures[id] < n || failures[id] > n+10 || told[id] < 5 || told[id] > 8 || !strings.Contains(texts[id][1], " events, the last one: ") {
				t.Errorf("%s: told %d times of %d failures, of %d in five seconds: %q", id, told[id], failures[id], n, texts[id])
			}
		}
	})
}
