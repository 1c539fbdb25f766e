package mongodb

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/fault"
)

// A cutDialer opens connections until it cuts them off, as the driver does with those that it opens
// while a server closes them.
type cutDialer struct {
	net.Dialer

	cut atomic.Bool
}

func (d *cutDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.cut.Load() {
		return nil, context.Canceled
	}
	return d.Dialer.DialContext(ctx, network, address)
}

// That the driver has canceled a context of its own is no cancellation by the caller, which would
// be an error without a code, and no failure of MongoDB.
func TestConnectionThatIsCutOffIsNotCanceled(t *testing.T) {
	t.Parallel()
	client, err := Dial(t.Context(), Config{URI: devmongotest.Start(t, devmongo.Config{}).URI(), SelectionTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	dialer, known := &cutDialer{}, make(chan struct{})
	usable := sync.OnceFunc(func() { close(known) })
	pool, err := client.Pool(func(o *options.ClientOptions) {
		o.SetDialer(dialer).SetServerMonitor(&event.ServerMonitor{ServerHeartbeatSucceeded: func(*event.ServerHeartbeatSucceededEvent) { usable() }})
	})
	if err != nil {
		t.Fatal(err)
	}
	<-known
	dialer.cut.Store(true)
	if _, err = helloOf(t.Context(), pool.Driver()); !errors.Is(err, context.Canceled) {
		t.Fatalf("the driver tells %v", err)
	}
	if err = AsFault(err); fault.Of(err) != fault.MongoUnreachable || errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	over, end := context.WithCancel(t.Context())
	end()
	if _, err = helloOf(over, client.Driver()); !errors.Is(AsFault(err), context.Canceled) { // whose connections are not cut off
		t.Errorf("the caller has canceled: %v", err)
	}
}

// A connection that breaks while the oplog is looked at is an unreachable MongoDB, and no error
// without a code.
func TestOplogThatCannotBeLookedAtHasACode(t *testing.T) {
	t.Parallel()
	client, err := Dial(t.Context(), Config{URI: devmongotest.Start(t, devmongo.Config{}).URI(), SelectionTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	breaks := bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "alwaysOn"},
		{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{"find"}}, {Key: "closeConnection", Value: true}}},
	}
	if err := client.Driver().Database("admin").RunCommand(t.Context(), breaks).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Reach(t.Context()); fault.Of(err) != fault.MongoUnreachable {
		t.Errorf("connections break: %v", err)
	}
}
