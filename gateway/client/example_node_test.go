package client_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	nodes "github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/devetcd"
	"github.com/mongostream/streamer/internal/devmongo"
	"github.com/mongostream/streamer/internal/wiring"
)

// A shop is what the examples subscribe to: nodes as they are by default, with a MongoDB to write to.
type shop struct {
	addresses []string // of the nodes, for gateways
	orders    *driver.Collection
	closers   []func()
}

// openShop starts nodes with the default configuration, and what they need. What examples begin they end with close.
func openShop(size int) *shop {
	s := &shop{}
	server, err := devmongo.Listen(devmongo.Config{HelloAwait: 500 * time.Millisecond})
	must(err)
	s.run(server.Run)
	dir, err := os.MkdirTemp("", "shop")
	must(err)
	s.closers = append(s.closers, func() { must(os.RemoveAll(dir)) })
	etcd, err := devetcd.Listen(devetcd.Config{Dir: dir})
	must(err)
	s.run(etcd.Run)
	db, err := driver.Connect(options.Client().ApplyURI(server.URI()))
	must(err)
	s.closers = append(s.closers, func() { must(db.Disconnect(context.Background())) })
	s.orders = db.Database("shop").Collection("orders")
	for i := range size {
		cfg, err := nodes.Load("", []string{
			"STREAMER_MONGODB_URI=" + server.URI(), "STREAMER_ETCD_ENDPOINTS=" + strings.Join(etcd.Endpoints(), ","),
			"STREAMER_HTTP_LISTEN=127.0.0.1:0", "STREAMER_GRPC_LISTEN=127.0.0.1:0",
			fmt.Sprint("STREAMER_NODE_ID=node-", i), fmt.Sprint("STREAMER_CLUSTER_EXPECTED_NODES=", size),
		})
		must(err)
		node, err := wiring.Assemble(context.Background(), wiring.Options{Config: cfg, Process: rand.Text()})
		must(err)
		s.run(node.Run)
		_, _, err = net.SplitHostPort(node.Gateway())
		must(err)
		s.addresses = append(s.addresses, node.Gateway())
	}
	return s
}

// run runs something until close.
func (s *shop) run(run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	s.closers = append(s.closers, func() {
		stop()
		must(<-ended)
	})
}

// order writes an order that has been paid.
func (s *shop) order(id int) {
	_, err := s.orders.InsertOne(context.Background(), bson.D{{Key: "_id", Value: id}, {Key: "status", Value: "paid"}})
	must(err)
}

// close ends everything, the last first.
func (s *shop) close() {
	for _, closer := range s.closers {
		defer closer()
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
