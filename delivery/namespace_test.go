package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// Who comes with many names waits once for a MongoDB that does not answer, and its names are
// accepted; when it answers again, views are refused as before.
func TestNamesWaitOnceForAServerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away, asked := true, 0
		b := begin(t, &oplogtest.Log{}, delivery.Config{Kinds: func(ctx context.Context, all []change.Namespace) (map[change.Namespace]change.NamespaceKind, error) {
			if asked++; away {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return map[change.Namespace]change.NamespaceKind{all[0]: change.NamespaceView}, nil
		}})
		defer b.end()
		begun := time.Now()
		for i := range 1000 {
			if _, err := b.hub.CheckNamespace(t.Context(), change.Namespace{DB: "shop", Coll: fmt.Sprint(i)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took > 5*time.Second || asked != 1 {
			t.Errorf("1,000 names took %s, MongoDB was asked %d times", took, asked)
		}
		away = false
		time.Sleep(time.Minute)
		if _, err := b.hub.CheckNamespace(t.Context(), change.Namespace{DB: "shop", Coll: "0"}, nil); fault.Of(err) != fault.SessionUnwatched {
			t.Errorf("a view: %v", err)
		}
	})
}

// Whoever names more than MongoDB can tell of in time is accepted. Nobody else's names are.
func TestNamesOfOneAreNotThoseOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begin(t, &oplogtest.Log{}, delivery.Config{Kinds: func(ctx context.Context, all []change.Namespace) (map[change.Namespace]change.NamespaceKind, error) {
			told := map[change.Namespace]change.NamespaceKind{all[0]: change.NamespaceView}
			if len(all) > 1 {
				<-ctx.Done()
			}
			return told, context.Cause(ctx)
		}})
		defer b.end()
		many := make([]change.Namespace, 100)
		for i := range many {
			many[i] = change.Namespace{DB: fmt.Sprint("db", i), Coll: "c"}
		}
		if names := b.hub.Names(t.Context(), many); names[many[99]] != change.NamespaceUnknown {
			t.Errorf("%v", names)
		}
		if _, err := b.hub.CheckNamespace(t.Context(), change.Namespace{DB: "shop", Coll: "view"}, nil); fault.Of(err) != fault.SessionUnwatched {
			t.Errorf("a view: %v", err)
		}
	})
}
