package streamer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/snapshot"
	"github.com/mongostream/streamer/streamer"
)

// Claiming a name writes its checkpoint: an identity that connects again and again with large ones
// is refused until it has paid for them. Others, and small ones, are not.
func TestIdentityPaysForTheLargeCheckpointsThatItClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{}
		source.Tick(1)
		w := newWorld(t, source)
		n := w.start("a", nil)
		defer n.stop(t)
		synctest.Wait()
		_, last := source.Reach()
		size := 0
		for _, by := range []string{"tenant", "other"} {
			large := checkpoint.Checkpoint{Key: checkpoint.Key{Subscriber: by + "/large"}, Position: change.At(last), Partitions: partitions, Reason: checkpoint.ReasonBegin}
			for i := range 900 {
				large.Snapshots = append(large.Snapshots, snapshot.Progress{Subscription: fmt.Sprint(i), Reason: snapshot.Start, Done: true})
			}
			size = large.Large()
			if _, err := w.store.ClaimName(t.Context(), checkpoint.Claim{Process: "1", Started: time.Now(), By: by}, large); err != nil {
				t.Fatal(err)
			}
		}
		connect := func(by, name string) error {
			request := streamer.Request{Subscriber: by + "/" + name, By: by, Process: "1", Started: time.Now(), Start: streamer.StartNow}
			_, err := n.Connect(t.Context(), request, deliverytest.Everything(t))
			return err
		}
		const times = 40
		begun := time.Now()
		for range times {
			if err := connect("tenant", "large"); err != nil {
				t.Fatal(err)
			}
		}
		burst, rate := 2*time.Minute, 64<<10
		if took, least := time.Since(begun), time.Duration((times-2)*size/rate)*time.Second-burst; took < least {
			t.Errorf("%d times took %s, they cost %s", times, took, least)
		}
		answers := make(chan error, 4)
		for range cap(answers) {
			go func() { answers <- connect("tenant", "large") }()
		}
		refused := 0
		for range cap(answers) {
			if err := <-answers; err != nil {
				refused++
				if fault.Of(err) != fault.AccessLimit {
					t.Error(err)
				}
			}
		}
		if refused == 0 {
			t.Error("nobody is refused who would wait for long")
		}
		for _, who := range [][2]string{{"tenant", "small"}, {"other", "large"}} {
			if err := connect(who[0], who[1]); err != nil {
				t.Errorf("%s: %v", who, err)
			}
		}
		time.Sleep(time.Minute)
		if err := connect("tenant", "large"); err != nil {
			t.Errorf("after a minute: %v", err)
		}
	})
}
