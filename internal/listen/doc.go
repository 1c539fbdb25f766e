// Package listen opens the network listeners of a node and protects its servers: TLS certificates,
// client authentication, connection limits, and timeouts that no HTTP client can evade.
//
// Everything under /v1/ of HTTP, and every gRPC service except health, requires authentication if
// it is configured; probes and metrics do not. Plaintext is served on loopback addresses only,
// unless the configuration allows it elsewhere.
//
// # Not obvious, and the tests that guard it
//
//   - Unauthenticated clients are distinguished only by their addresses; an address has half of a
//     port; unfinished handshakes give way to others (TestNodeIsServingUnderAttack,
//     listen.TestHandshakesUnderWayAreBounded)
//   - Loopback is no trust zone: browsers reach it for every page that they show
//     (listen.TestPagesOfOthersAreRefusedOnLoopback)
package listen
