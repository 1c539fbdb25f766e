// Package client subscribes to MongoDB changes through a Streamer node. Changes are filtered by the
// node, acknowledged by the program, and resumed after a restart.
//
//	c, err := client.New(client.Config{Addresses: []string{"127.0.0.1:9090"}, Subscriber: "shipping", Start: client.StartNow})
//	err = c.Subscribe(client.Subscription{ID: "paid", DB: "shop", Coll: "orders", Filter: `doc.status == "paid"`, Format: client.JSON}, handler)
//	err = c.Run(ctx)
//
// docs/guides.md has a whole program for the demo (go run ./dev/demo). A filter on doc needs nodes
// with mongodb.full_document: updateLookup, because an update does not carry the document.
//
// New starts nothing. Run connects, blocks, and owns every goroutine. It reconnects automatically:
// it tries the addresses in turn, with exponential backoff and jitter, and resumes at the last
// position. It returns nil when its context ends. It returns an error when a retry cannot help: the
// node rejects the configuration, a newer process uses the same subscriber name, or a change cannot
// be handled.
//
// With [Owned], the client opens one session to each node for the partitions that the node owns,
// and follows partitions when they move.
//
// # Delivery
//
// Delivery is at least once. Every change that matches a subscription reaches its handler, or a
// [Resync] bounds what may have been missed. A change is handled when the handlers of all its
// subscriptions have returned nil. The client tracks the position of each partition change by
// change and drops changes that are redelivered after a reconnect or by another node. Within one
// Run, a handler therefore sees a change again only after a [Rewound] or after the number of
// partitions has changed. After a crash, the program resumes at its own [Position] or at the
// checkpoint that the nodes keep under its name. Changes that were handled but not acknowledged are
// redelivered with the same [Change.ID]. A program that hands changes over to something that
// finishes them later and in batches sets Config.Acks to AckManual and calls [Client.Acknowledge].
//
// The changes of a partition, and so those of a document, are handled one at a time in the order of
// the log. Up to Config.Concurrency partitions are handled concurrently. A drop, rename,
// dropDatabase or invalidate belongs to no document. It is handled once, after everything before it
// in all partitions and before everything after it.
//
// # Failures
//
// A handler that returns an error is retried with backoff, up to Config.Attempts times. Its
// partition waits; other partitions continue. After the last attempt Config.OnPoison decides
// whether to skip the change or to end Run. By default Run ends, so that nothing is skipped
// silently. A Resync or Rewound that OnNotice cannot handle is treated the same way.
//
// # Flow control
//
// The node stops sending while too much is unacknowledged. In addition, the client stops reading
// while Config.QueueBytes of changes wait for handlers. Notices about the service are dropped and
// counted when OnNotice is too slow; Subscribed and Rejected are never dropped. Subscribe and
// Unsubscribe never block.
package client
