// Command gateway shows a gateway: it pushes MongoDB's changes to browsers over WebSockets.
//
//	go run ./examples/gateway -node 127.0.0.1:9090 -listen 127.0.0.1:8090
//
// All browsers share one client of the node; each is one subscription, with the filter of its
// query. A browser that does not keep up is disconnected and connects again, so that it does not
// delay the others. After it has subscribed, it reads the database itself, and reads it again after
// a resync.
package main
