// Package door is what stands between the network and a node: listeners that accept so many connections, certificates, who may come in, and
// what no client may do to an HTTP server, whatever it asks for.
//
// Everything under /v1/ of HTTP and every gRPC service but health asks who is there; probes and metrics ask nobody. Plaintext is spoken on
// loopback addresses, elsewhere only where the configuration says so.
package door
