// Package client subscribes to MongoDB's changes at a Streamer node: filtered, acknowledged, resumable.
//
//	c, err := client.New(client.Config{Addresses: …, GatewayID: "orders", Start: client.StartResume, OnNotice: …})
//	orders := client.Subscription{ID: "paid", DB: "shop", Coll: "orders", Ops: []string{"insert", "replace"}, Filter: `doc.status == "paid"`}
//	err = c.Subscribe(orders, handler)
//	err = c.Run(ctx)
//
// Inserts and replaces carry the document, so that filters can read it; updates do where the nodes' mongodb.full_document asks for it, and a
// filter that reads what is not there is refused.
//
// New starts nothing; Run connects, blocks, and owns every goroutine. It reconnects by itself, to each address in turn, after waits that
// grow and have a random part, and resumes where it stands. It returns nil when its context has ended, and an error where trying again
// would not help: the node refuses the program, or a subscription made before Run (unless Config.OnRejected goes on without), a newer process
// has the gateway's id, or a change is poison.
//
// With Config.Partitions Owned it keeps a session with each node for the partitions that the node owns, and follows them when they move;
// package fleet tells how.
//
// # What is delivered, and how often
//
// Every change that matches a subscription reaches its handler, or a [notice.Resync] says what may have been missed. A change is handled when the
// handlers of all its subscriptions have returned nil. How far a partition has been handled is its position: a place in the log that moves
// change by change. What a reconnect, another node or a replay sends again is dropped by that position, so that within one Run a change
// reaches a handler again only after a [notice.Rewound], or after a repartition of the cluster. A program that has crashed goes on at the positions
// that it kept itself (Positions and Config.Positions) or at those that the node keeps for its GatewayID: what it had handled and not
// acknowledged by then comes again, with the same [Change.ID].
//
// The changes of a partition, and so those of a document, come in the order of the log, one after the other. Different partitions come
// concurrently, as many at a time as Config.Concurrency says.
//
// # Failures
//
// A handler that fails is called again, Config.Attempts times in all, with growing waits; its partition waits, the others go on. Then
// Config.OnPoison decides whether the change is skipped or Run ends. Without OnPoison it ends: nothing is skipped in silence. A
// Resync or Rewound that OnNotice fails to deal with is treated likewise.
//
// # What full means
//
// The node stops sending while too much is unacknowledged. Beyond that, the client reads nothing more while it holds Config.QueueBytes
// of changes that wait for their handlers. Notices about the service that OnNotice does not take are dropped and counted; what became of a
// subscription never is. Calls of Subscribe and Unsubscribe never block.
//
// # Collection-level events
//
// A drop, rename, dropDatabase or invalidate has no document, so that it comes once in each partition, in its place there.
// Config.OnCollection hears of it once, when every partition has passed it. Nothing waits for that.
package client
