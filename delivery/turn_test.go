package delivery_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change/changetest"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// enough is how many events to so many sessions of an identity cost more than its share of the live
// path, where no time passes.
func enough(sessions int) int {
	return runtime.GOMAXPROCS(0)*10_000_000/(sessions*2_600) + 10
}

// An identity with many sessions that want everything leaves the live path, where its sessions take
// turns: it waits for what it is sent, and others do not. Everybody has everything in order and
// once, and it comes back later.
func TestIdentityThatWantsEverythingPaysForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 1}
		source.Tick(1)
		b := begin(t, source, delivery.Config{CreditEvents: 1 << 20})
		defer b.end()
		const many = 50
		open := func(account string, filter string) *delivery.Session {
			return b.open(delivery.SessionConfig{Account: account, Identity: account}, filtered(t, filter))
		}
		all := map[string]*delivery.Session{"honest": open("honest", ""), "frugal": open("frugal", cheap)}
		for i := range many {
			all[fmt.Sprint("greedy ", i)] = open("greedy", "")
		}
		greedy := all["greedy 0"]
		synctest.Wait()
		check := func(events []changetest.Event) {
			t.Helper()
			for name, s := range all {
				deliverytest.Equal(t, name, deliverytest.Refs(deliverytest.Receive(t, s, len(events))), deliverytest.Wanted(events))
			}
		}
		check(source.Append(deliverytest.Inserts(enough(many), 0)...))
		for name, s := range all {
			if live := s.State().Live; live != (name == "honest" || name == "frugal") {
				t.Errorf("%s: live %t", name, live)
			}
		}

		begun := time.Now()
		events := source.Append(deliverytest.Inserts(1, 7)...)
		for _, name := range []string{"honest", "frugal"} {
			deliverytest.Equal(t, name, deliverytest.Refs(deliverytest.Receive(t, all[name], 1)), deliverytest.Wanted(events))
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("others waited for %s", took)
		}
		for name, s := range all {
			if name != "honest" && name != "frugal" {
				deliverytest.Equal(t, name, deliverytest.Refs(deliverytest.Receive(t, s, 1)), deliverytest.Wanted(events))
			}
		}
		if took, least := time.Since(begun), time.Duration((many-1)/max(1, runtime.GOMAXPROCS(0)/2))*26*time.Microsecond; took < least {
			t.Errorf("its sessions took %s for their turns, less than %s", took, least)
		}

		again := open("greedy", "") // evades nothing
		for range 5 {
			source.Append(deliverytest.Inserts(1, 1)...)
			synctest.Wait()
		}
		if again.State().Live {
			t.Error("connecting again evades its turn")
		}
		time.Sleep(time.Minute)
		source.Append(deliverytest.Inserts(1, 1)...)
		time.Sleep(time.Second)
		synctest.Wait()
		if !greedy.State().Live || !again.State().Live {
			t.Error("it stays away for ever")
		}
	})
}

// An identity that has the node for itself may be sent what it wants.
func TestLoneIdentityStaysOnTheLivePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oplogtest.Log{ReplyEvents: 1}
		source.Tick(1)
		b := begin(t, source, delivery.Config{CreditEvents: 1 << 20})
		defer b.end()
		own := b.open(delivery.SessionConfig{}, filtered(t, "")) // the node's own
		var all []*delivery.Session
		for range 20 {
			all = append(all, b.open(delivery.SessionConfig{Account: "a"}, filtered(t, "")))
		}
		synctest.Wait()
		events := source.Append(deliverytest.Inserts(2*enough(len(all)), 0)...)
		for _, s := range append(all, own) {
			deliverytest.Equal(t, "session", deliverytest.Refs(deliverytest.Receive(t, s, len(events))), deliverytest.Wanted(events))
			if !s.State().Live {
				t.Error("it has left the live path")
			}
		}
	})
}
