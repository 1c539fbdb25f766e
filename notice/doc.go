// Package notice provides typed messages to operators about the service, on four channels.
//
// A [Board] receives notices from all parts of a node, logs them, keeps the most recent ones, and
// lets any number of readers follow. Posting never blocks: a reader that is too slow misses the
// oldest notices and learns their number. A [Stream] serves a board as server-sent events. [Table]
// defines the kinds of notices and their fields.
//
// # History
//
// A [Recorder] shares notices between the nodes of a cluster. It writes the notices of its node's
// board into a [Store], in batches in the background, and adds those of other nodes to the board.
// So every board shows the notices of the whole cluster, including those from before its process
// started.
//
// While the store is unavailable, a bounded number of notices waits; beyond it the oldest are
// dropped and counted. The board itself never waits. A notice of another node is renumbered by this
// board and marked as relayed: readers of the board receive it, but it is not logged or sent to
// webhooks again.
//
// # Webhook
//
// A [Webhook] posts the notices of its node's board to a URL, each as a signed [Delivery]. Within a
// window it sends the first few notices of each severity individually, counts the others, and sends
// one [Summary] with the number and the last text of each kind. So a storm does not delay the first
// critical notice, and the number of requests is bounded. Relayed notices are sent by their own
// nodes.
//
// Deliveries wait in a bounded queue. When it is full, a notice is counted in the next summary, and
// a summary is merged into the next one. The board never waits. A delivery is retried with backoff
// after connection failures, timeouts, 408, 429 and 5xx. Any other response is final; redirects are
// not followed.
//
// A receiver authenticates a delivery with [VerifyDelivery]: X-Streamer-Signature is the
// HMAC-SHA256 of X-Streamer-Timestamp, a dot and the body. X-Streamer-Delivery is the same for all
// attempts, so that a receiver can deduplicate.
//
// # Not obvious, and the tests that guard it
//
//   - Logins can neither displace operators' actions from the histories, nor flood them
//     (notice.TestHistoriesHaveTheirOwnBounds, notice.TestNobodyFloodsTheAuditLog)
//   - A notice's place in the history is the revision at which etcd took it: no clock orders
//     notices (TestOthersNoticesAreReadInTheOrderInWhichTheyCame)
package notice

//go:generate go test -run TestKindsAreDocumented -args -rewrite
