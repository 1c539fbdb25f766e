// Package webhook posts the notices of a node's board to an address of the operator's: JSON, signed, tried again, and throttled so that a
// storm of notices is one summary.
//
// A [Sender] sends each notice as one delivery ([Delivery]). Of each severity the first few of a window go singly; the others are counted,
// and one summary a window says how many there were of which kind, with the last text of each. So the first critical notice is never held
// back by a storm of others, and the receiver gets a bounded number of requests whatever happens. What relayed notices are (those of other
// nodes), their nodes send.
//
// Deliveries wait in a queue with a bound. What does not fit is counted into the next summary; a summary that does not fit waits for the
// next window. The board never waits. A delivery is tried again after failures of the connection, timeouts, 408, 429 and 5xx, a few
// times with growing pauses; every other answer is final, redirects too, which are never followed.
//
// A receiver proves with [Verify] who writes: X-Streamer-Signature is the HMAC-SHA256 of X-Streamer-Timestamp, a dot and the body.
// X-Streamer-Delivery is the same whenever a delivery is tried again: a receiver that has seen it has the notice.
package webhook
