package fleet_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/gateway/client/fleet"
	"github.com/mongostream/streamer/gateway/streampb"
)

// A fading session is one with a node that ends what it has begun.
type fading struct{}

func (fading) Attach([]uint32) {}
func (fading) Detach([]uint32) {}
func (fading) Leave()          {}

// A node that lets sessions begin and ends them at once, as one does that is about to stop, is tried at the pace of its link.
func TestNodeThatEndsEverySessionIsNotTriedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fleet.Fleet
		const wait = time.Second
		tries := make(chan time.Time, 1000)
		version := uint64(1)
		topology := func(version uint64) *streampb.Topology {
			nodes := []*streampb.Topology_Node{{Name: "a", Address: "a:1"}, {Name: "b", Address: "b:1"}}
			return &streampb.Topology{Version: version, Owners: []int32{0, 1}, Nodes: nodes}
		}
		f = fleet.New(fleet.Config{
			Addresses: []string{"a:1"}, Dialable: func(string) bool { return true }, Known: func() bool { return true },
			Link: func(ctx context.Context, addresses fleet.Addresses) {
				for {
					address, ok := addresses.Next(ctx)
					if !ok {
						return
					}
					if address == "a:1" {
						f.Up(fading{}, "a", 2)
						f.Learn(topology(1))
						<-ctx.Done()
						addresses.Over()
						continue
					}
					select {
					case tries <- time.Now():
					default:
					}
					with := &struct{ fading }{}
					f.Up(with, "b", 2)
					f.Down(with)
					addresses.Over()
					if len(tries) < cap(tries) {
						version++ // something happens elsewhere
						f.Learn(topology(version))
					}
					timer := time.NewTimer(wait)
					select {
					case <-timer.C:
					case <-ctx.Done():
					}
				}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx)
		}()
		time.Sleep(10*wait + wait/2)
		if n := len(tries); n < 5 || n > 11 {
			t.Errorf("%d tries in 10 s", n)
		}
		cancel()
		<-done
	})
}
