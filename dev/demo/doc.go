// Command demo runs the whole system in one process on embedded parts: a development MongoDB, a
// real etcd, a node, a shop that is written to and a subscriber.
//
//	demo [-for 10s] [-rate 20] [-partitions 16] [-http 127.0.0.1:8080] [-o json]
//	demo parts [-mongodb 127.0.0.1:27017] [-etcd 127.0.0.1:2379]
//
// On a terminal it shows how it does, elsewhere it writes a line now and then.
package main
