// Package connect serves the gateways' protocol (proto/streamer/v1) over gRPC: one session of package fanout for each connection.
//
// A connection says Hello within the handshake timeout and is heard again before each heartbeat timeout, or is closed. What it sends is read at the
// pace at which it can be dealt with; what it does not take fills its session's credit and then waits in the log. A gateway's id is
// held by one connection at a time: of two processes the one that started later, of one process the connection that came last.
package connect
