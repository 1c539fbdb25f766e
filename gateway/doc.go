// Package gateway implements the servers that subscribers connect to. [Server] speaks the protocol
// of proto/streamer/v1 over gRPC; [Events] serves GET /v1/events as server-sent events. Each
// connection is one session of the node; package streamer implements what both share.
//
// # gRPC
//
// A client must send a Hello within the handshake timeout and any message within each heartbeat
// timeout, or the connection is closed. The server reads requests at the rate at which it can
// process them. When a client does not receive, its session runs out of credit and its changes wait
// in the log; when it takes nothing for the stall timeout, it is disconnected, whatever it sends.
// Batches are encoded by hand, because their payloads are already encoded.
//
// A session ends with its client: the context of its call ends every wait, and the compilation of
// its filters.
//
// # Server-sent events
//
// The position of a client is the id of its last event, which it sends as Last-Event-ID. Whatever
// has been written to the client counts as acknowledged. A client that gives a subscriber name also
// has a checkpoint and resumes there without an id. A node that stops ends its streams with a
// reconnect delay. It answers an EventSource with a permanent error only if the client must change
// something.
//
// A client that receives nothing for the stall timeout is disconnected. It reconnects with its last
// id and misses nothing.
//
// A stream over HTTP/1.1 takes its connection from the HTTP server, and its request returns: what a
// waiting stream holds of it, buffers and a deep stack, would be half of its memory
// (docs/adr/0010-connections-of-event-streams.md).
//
// A compressed stream is a gzip file of fragments, one for each event. They are shared by all
// streams whose text is the same, and compressed when the first of them needs them. The text has
// the event's id, in which the generation and the snapshot of a client may be.
//
// # Not obvious, and the tests that guard it
//
//   - A write that blocks on a full socket does not end by itself when its client has left; a gRPC
//     stream that is not taken stays in memory with its connection
//     (gateway.TestEventStreamEndsWithItsClient, TestStalledGatewayLosesItsConnection)
//   - A stream that has left its request ends with the node, its client and its credentials, as if
//     it had not (gateway.TestDetachedStreamsEndWithTheNode, TestDetachedStreamsEndWithTheirRights),
//     and a panic in it does not end the node (gateway.TestPanicEndsItsStreamOnly)
//   - An event is compressed without the events before it: a common window would show in its size
//     whether a secret of another event begins like a text that an attacker has written
//     (gateway.TestFragmentsAreIndependent)
//   - A subscriber's name belongs to its identity, in the store as well: a checkpoint of another
//     identity, or one planted on an open node, is refused (gateway.TestNameBelongsToItsIdentity,
//     gateway.TestCheckpointsOfAnOpenNodeAreNobodys)
//   - A session that ends because of a filter has not considered the rest of its batch: its
//     position must not move past that (gateway.TestSuspendedFilterLosesNothing)
//   - A node serves partitions that it does not own to clients that attach them, so that no client
//     need be in step with the topology (client.TestOwnersComeAndGo,
//     client.TestAnyNodeServesEverything)
package gateway
