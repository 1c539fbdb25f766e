// Package http posts changes to an HTTP endpoint: one CloudEvent as application/cloudevents+json,
// or a batch as application/cloudevents-batch+json; other formats as JSON lines.
//
// Partitions are posted in parallel, each in order: the next request of a partition follows the
// response to the previous one. Requests are signed like notices (docs/notices.md).
//
//	2xx                     everything in the request is acknowledged
//	408, 425, 429, 5xx      the endpoint is unavailable: the request is retried without limit, not before Retry-After
//	410                     the endpoint wants nothing more: the sink halts
//	413                     the request is divided; a single change that is too large is refused
//	400, 409, 422           refused: the change is tried alone, and finally becomes a dead letter
//	other 4xx, 3xx          the endpoint takes no change: as if it were unavailable
//
// The address that is dialled must be public, or in a network that the configuration allows: a name
// that resolves to an internal address reaches nothing.
package http
