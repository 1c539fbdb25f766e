package wiring

import (
	"context"
	"fmt"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/delivery/deliverytest"
	"github.com/mongostream/streamer/match"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
)

// A sink with many subscriptions costs MongoDB one request.
func TestSinkLooksUpItsNamesTogether(t *testing.T) {
	t.Parallel()
	asked := 0
	hub := delivery.New(delivery.Config{Partitions: 4, Kinds: func(_ context.Context, all []change.Namespace) (map[change.Namespace]change.NamespaceKind, error) {
		asked++
		kinds := make(map[change.Namespace]change.NamespaceKind)
		for _, ns := range all {
			kinds[ns] = change.NamespaceCollection
		}
		kinds[change.Namespace{DB: "shop", Coll: "7"}] = change.NamespaceMissing
		return kinds, nil
	}}, oplog.New(oplog.Config{Partitions: 4}, &oplogtest.Log{}))
	var subscriptions []delivery.Subscription
	for i := range 100 {
		name := fmt.Sprint(i)
		subscriptions = append(subscriptions, delivery.Subscription{ID: name, Program: deliverytest.Compile(t, match.Filter{DB: "shop", Coll: name})})
	}
	missing, err := checkSink(hub, subscriptions)(t.Context())
	if err != nil || len(missing) != 1 || asked != 1 {
		t.Errorf("missing: %q, %v; MongoDB was asked %d times", missing, err, asked)
	}
}
