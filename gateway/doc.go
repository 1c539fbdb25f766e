// Package gateway is what subscribers connect to.
//
// [Events] serves GET /v1/events as server-sent events: every client is one cursor in the node's own tail, which carries every
// partition, and reads on at its own pace. It needs no acknowledgement and holds no mark: its position is the id of the last
// event, which the client keeps and sends again as Last-Event-ID.
//
// An id names no document: it holds the head of the position and a hash of the token, the number of partitions and a tag of the
// cluster. Heartbeats carry the id of the progress, so that a client of a quiet selection does not fall out of the log.
//
// # What full means
//
// A client that reads slowly holds nothing but one buffer: its cursor falls behind and comes back through a catch-up. One that takes
// nothing for the stall timeout is cut off; it reconnects with its last id and misses nothing.
package gateway
