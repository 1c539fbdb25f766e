package snapshot

import (
	"sync"
	"testing"
	"testing/synctest"
)

// However many scans of one identity wait to read a page, one of another identity is next; and few
// are read at a time.
func TestManyScansOfOneDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(nil)
		var all sync.WaitGroup
		var mu sync.Mutex
		var order []string
		next := make(chan struct{})
		scan := func(identity string) {
			all.Go(func() {
				if !turns.Acquire(t.Context(), identity) {
					t.Error("it has no turn")
					return
				}
				mu.Lock()
				order = append(order, identity)
				mu.Unlock()
				<-next
				turns.Release()
			})
			synctest.Wait()
		}
		const many = 20
		for range many {
			scan("greedy")
		}
		if len(order) != maxReads {
			t.Errorf("%d pages are read at a time, not %d", len(order), maxReads)
		}
		scan("honest")
		next <- struct{}{}
		synctest.Wait()
		if last := order[len(order)-1]; last != "honest" {
			t.Errorf("the next page is read for the %s one", last)
		}
		close(next)
		all.Wait()
	})
}
