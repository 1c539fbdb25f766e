package admin

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// However many requests of one identity wait, the next one is that of another, and those whose
// clients have gone hold up nobody.
func TestManyRequestsOfOneIdentityAreOneInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := newTurns()
		first, ok := line.take(t.Context(), "tenant")
		if !ok {
			t.Fatal("the first request waits")
		}
		var mu sync.Mutex
		var order []string
		request := func(ctx context.Context, identity string) {
			go func() {
				done, ok := line.take(ctx, identity)
				if !ok {
					return
				}
				defer done()
				mu.Lock()
				defer mu.Unlock()
				order = append(order, identity)
			}()
			synctest.Wait()
		}
		ctx, leave := context.WithCancel(t.Context())
		for range 20 {
			request(t.Context(), "tenant")
			request(ctx, "tenant")
		}
		request(ctx, "gone")
		request(t.Context(), "operator")
		leave()
		synctest.Wait()
		first()
		synctest.Wait()
		if at := slices.Index(order, "operator"); at != 0 || len(order) != 21 {
			t.Errorf("the operator is number %d of %d", at+1, len(order))
		}
		if len(line.lines) != 0 {
			t.Errorf("%d identities are kept", len(line.lines))
		}
	})
}
