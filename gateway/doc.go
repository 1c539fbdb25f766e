// Package gateway is what subscribers connect to: [Server] speaks the protocol of proto/streamer/v1 over gRPC, [Events] serves GET /v1/events as
// server-sent events. Each connection is a session of the node; what they have in common is in package streamer.
//
// # gRPC
//
// A connection says Hello within the handshake timeout and is heard again before each heartbeat timeout, or is closed. What it sends is read
// at the pace at which it can be dealt with; what it does not take fills its session's credit and then waits in the log. Batches are
// written by hand, because their payloads are bytes already.
//
// # Server-sent events
//
// A client's position is the id of the last event, which it sends again as Last-Event-ID. What has been written to it counts as acknowledged. One
// that gives a name has a checkpoint too, and resumes there without an id. A node that stops ends its streams with a time to connect again
// after; it never answers an EventSource with a status upon which that gives up, unless the client must change something.
//
// A client that takes nothing for the stall timeout is cut off; it reconnects with its last id and misses nothing.
package gateway
