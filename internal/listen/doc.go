// Package listen opens the network listeners of a node and protects its servers: TLS certificates,
// client authentication, connection limits, and timeouts that no HTTP client can evade.
//
// Everything under /v1/ of HTTP, and every gRPC service except health, requires authentication if
// it is configured; probes and metrics do not. Plaintext is served on loopback addresses only,
// unless the configuration allows it elsewhere.
package listen
