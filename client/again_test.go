package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A fading session is one with a node that ends what it has begun.
type fading struct{}

func (fading) attach([]uint32) {}
func (fading) detach([]uint32) {}
func (fading) leave()          {}

// A node that lets sessions begin and ends them at once, as one does that is about to stop, is
// tried at the pace of its link.
func TestNodeThatEndsEverySessionIsNotTriedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fleet
		const wait = time.Second
		tries := make(chan time.Time, 1000)
		version := uint64(1)
		topology := func(version uint64) *streampb.Topology {
			nodes := []*streampb.Topology_Node{{Name: "a", Address: "a:1"}, {Name: "b", Address: "b:1"}}
			return &streampb.Topology{Version: version, Owners: []int32{0, 1}, Nodes: nodes}
		}
		f = newFleet(fleetConfig{
			addresses: []string{"a:1"}, dialable: func(string) bool { return true },
			link: func(ctx context.Context, at addresses) {
				for {
					address, ok := at.next(ctx)
					if !ok {
						return
					}
					if address == "a:1" {
						f.up(fading{}, "a", 2)
						f.learn(topology(1))
						<-ctx.Done()
						at.over()
						continue
					}
					select {
					case tries <- time.Now():
					default:
					}
					with := &struct{ fading }{}
					f.up(with, "b", 2)
					f.down(with)
					at.over()
					if len(tries) < cap(tries) {
						version++ // something happens elsewhere
						f.learn(topology(version))
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
			f.run(ctx)
		}()
		time.Sleep(10*wait + wait/2)
		if n := len(tries); n < 5 || n > 11 {
			t.Errorf("%d tries in 10 s", n)
		}
		cancel()
		<-done
	})
}
