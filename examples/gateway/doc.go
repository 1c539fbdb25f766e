// Command gateway shows a gateway: it pushes MongoDB's changes to browsers over WebSockets.
//
//	go run ./examples/gateway -node 127.0.0.1:9090 -listen 127.0.0.1:8090
//
// All browsers share one client of the node; each is one subscription, with the filter of its
// query. A browser that does not keep up is let go and connects again: nobody waits for it. It
// begins with what it reads of the database itself once it is subscribed, and reads that again when
// it is told to resync.
package main
