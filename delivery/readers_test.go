package delivery_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/delivery"
)

// heap returns the bytes of objects that are in use.
func heap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// A thousand readers of a collection that acknowledge nothing stay within the budget, by its own
// account and by that of the heap, and those that do acknowledge get all of it beside the others.
func TestThousandReadersStayWithinTheBudget(t *testing.T) {
	const readers, n = 1000, 150
	for _, identities := range []int{1, 100} {
		t.Run(fmt.Sprint(identities, " identities"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const budget = 16 << 20
				docs := &shelf{collections: []string{"orders"}, documents: n, page: n, takes: time.Millisecond, padding: 1000}
				b := onShelf(t, docs, delivery.Config{QueueBytes: budget})
				defer b.end()
				before := heap()
				var sessions []*delivery.Session
				for i := range readers {
					sessions = append(sessions, b.open(delivery.SessionConfig{
						Start: delivery.Place{At: b.log.End()}, Identity: fmt.Sprint(i % identities),
					}, collection(t, "orders")))
				}
				time.Sleep(time.Minute)
				sent := 0
				for _, s := range sessions {
					sent += s.State().Events
				}
				held, grown := b.hub.Load().Held, heap()-before
				t.Logf("%d documents for %d readers: %d KiB held, the heap has grown by %d KiB", sent, readers, held>>10, grown>>10)
				if held > budget {
					t.Errorf("%d bytes are held, the budget is %d", held, budget)
				}
				if grown > budget+readers*perSession {
					t.Errorf("the heap has grown by %d bytes", grown)
				}
				if sent < 4*readers {
					t.Errorf("only %d documents are sent to %d readers", sent, readers)
				}
				var wg sync.WaitGroup
				for _, s := range sessions[:20] {
					wg.Go(func() { wantAll(t, documents(t, s), n) })
				}
				wg.Wait()
			})
		})
	}
}

// perSession is the memory of a session besides what it has queued.
const perSession = 20 << 10
