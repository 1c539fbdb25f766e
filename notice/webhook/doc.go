// Package webhook posts the notices of a node's board to a URL: as signed JSON, with retries, and rate-limited so that a storm of notices
// becomes one summary.
//
// A [Sender] sends each notice as a [Delivery]. Within a window it sends the first few notices of each severity individually, counts the
// others, and sends one summary with the number and the last text of each kind. So a storm does not delay the first critical notice, and
// the number of requests is bounded. Relayed notices are sent by their own nodes.
//
// Deliveries wait in a bounded queue. When it is full, a notice is counted in the next summary, and a summary is merged into the next one.
// The board never waits. A delivery is retried with backoff after connection failures, timeouts, 408, 429 and 5xx. Any other response is
// final; redirects are not followed.
//
// A receiver authenticates a delivery with [Verify]: X-Streamer-Signature is the HMAC-SHA256 of X-Streamer-Timestamp, a dot and the body.
// X-Streamer-Delivery is the same for all attempts, so that a receiver can deduplicate.
package webhook
