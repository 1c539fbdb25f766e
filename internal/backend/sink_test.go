package backend

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"testing"

	"github.com/mongostream/streamer/internal/config"
)

// Nodes of all versions compare what they serve: the form is that of the versions before, and every
// field of a subscription is in it.
func TestServedIsTheSameInEveryVersion(t *testing.T) {
	t.Parallel()
	sub := config.SinkSubscription{Namespace: "shop.orders", Operations: []string{"insert", "update"}, Filter: `doc.name == "é"`}
	served := func(all ...config.SinkSubscription) string {
		return Served([]config.Sink{{Name: "kafka", Subscriptions: all}})[0]
	}
	hashed := func(text string) string {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(text))
		return fmt.Sprintf("kafka#%x", hash.Sum64())
	}
	for form, got := range map[string]string{
		`[]`: served(),
		`[{"shop.orders" ["insert" "update"] "doc.name == \"é\""}]`:            served(sub),
		`[{"" [] ""} {"shop.orders" ["insert" "update"] "doc.name == \"é\""}]`: served(config.SinkSubscription{}, sub),
	} {
		if got != hashed(form) {
			t.Errorf("%s: %s", form, got)
		}
	}
	for i := range reflect.TypeFor[config.SinkSubscription]().NumField() {
		other := sub
		reflect.ValueOf(&other).Elem().Field(i).SetZero()
		if served(other) == served(sub) {
			t.Errorf("two nodes that differ in %s seem to serve the same", reflect.TypeFor[config.SinkSubscription]().Field(i).Name)
		}
	}
}
