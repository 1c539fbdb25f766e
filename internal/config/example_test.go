package config_test

import (
	"fmt"

	"github.com/mongostream/streamer/internal/config"
)

func ExampleLoad() {
	c, err := config.Load("../../config.yaml", []string{
		"STREAMER_MONGODB_URI=mongodb://streamer:hush@db1,db2/?replicaSet=rs0",
		"STREAMER_MONGODB_WATCH=shop.orders,stock.*",
	})
	fmt.Println(c.MongoDB.URI, c.MongoDB.Watch, c.Cluster.LeaseTTL, err)
	// Output: mongodb://***@db1,db2/?replicaSet=rs0 [shop.orders stock.*] 10s <nil>
}

// Everything that is wrong is told at once, with its place.
func ExampleLoad_complaints() {
	_, err := config.Load("testdata/typo.yaml", []string{"STREAMER_LOG_LEVEL=loud"})
	fmt.Println(err)
	// Output:
	// STRM-CONFIG-BAD-VALUE: testdata/typo.yaml:2: cluster.lease_ttl: "1s" must lie between 2s and 1h
	// STRM-CONFIG-BAD-VALUE: testdata/typo.yaml:4: mongodb.watch: "shop" must be a namespace, db.coll, or db.* for a whole database
	// STRM-CONFIG-UNKNOWN-KEY: testdata/typo.yaml:5: there is no key "mongodb.prefech"; did you mean mongodb.prefetch?
	// STRM-CONFIG-BAD-VALUE: STREAMER_LOG_LEVEL: log.level: "loud" must be one of debug, info, warn, error
}
