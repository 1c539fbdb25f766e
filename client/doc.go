// Package client subscribes to MongoDB's changes at a Streamer node: filtered, acknowledged, resumable.
//
//	c, err := client.New(client.Config{Addresses: …, Subscriber: "orders", Start: client.StartNow, OnNotice: …})
//	err = c.Subscribe(client.Subscription{ID: "paid", DB: "shop", Coll: "orders", Filter: `doc.status == "paid"`}, handler)
//	err = c.Run(ctx)
//
// New starts nothing; Run connects, blocks, and owns every goroutine. It connects again by itself, to each address in turn, after waits that
// grow and have a random part, and goes on where it is. It returns nil when its context has ended, and an error where trying again would not
// help: the node refuses what the program asks for, a newer process has the subscriber's name, or a change is poison.
//
// With Config.Partitions Owned it has a session with each node for the partitions that the node owns, and follows them when they move.
//
// # What is delivered, and how often
//
// Every change that matches a subscription reaches its handler, or a [Resync] says what may have been missed. A change is handled when the
// handlers of all its subscriptions have returned nil. How far a partition has been handled is a place in the log that moves change by change.
// What a reconnect or another node sends again is dropped by that place, so that within one Run a change reaches a handler again only after
// a [Rewound], or after the cluster has been partitioned anew. A program that has crashed goes on at the [Position] that it kept itself, or at
// the checkpoint that the nodes keep for its name: what it had handled and not acknowledged by then comes again, with the same [Change.ID].
//
// The changes of a partition, and so those of a document, come in the order of the log, one after the other. Different partitions come
// concurrently, as many at a time as Config.Concurrency says. A drop, rename, dropDatabase or invalidate is of no document: it comes once,
// after everything before it in all partitions and before everything after it.
//
// # Failures
//
// A handler that fails is called again, Config.Attempts times in all, with growing waits; its partition waits, the others go on. Then
// Config.OnPoison decides whether the change is skipped or Run ends. Without OnPoison it ends: nothing is skipped in silence. A Resync or
// Rewound that OnNotice fails to deal with is treated likewise.
//
// # What full means
//
// The node stops sending while too much is unacknowledged. Beyond that, the client reads nothing more while it holds Config.QueueBytes of
// changes that wait for their handlers. Notices about the service that OnNotice does not take are dropped and counted; what became of a
// subscription never is. Calls of Subscribe and Unsubscribe never block.
package client
