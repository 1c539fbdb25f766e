// Package oplog is the oplog of devmongo, its resume tokens, and the change streams that read it.
//
// # Log
//
// A [Log] is a bounded sequence of entries in cluster time order. Each is kept as the change event
// that a change stream with default options shows, encoded once when it is written. Everything else
// is derived from that: the documents of local.oplog.rs (Documents), and the events of streams with
// other options. An entry without an event (a create, a no-op) keeps its oplog document.
//
//	writer ─► Append ─► clock ─► encode ─► segment ─► committed ─► readers wake
//
// Entries are numbered from 0 (seq) and never change. They are kept in segments. A reader takes a
// slice of one segment under a read lock and works on it outside, so readers block neither each
// other nor writers. When the log exceeds its bound, the oldest entries are removed; a reader that
// needs one of them finds out by its seq. The entries of one transaction share a cluster time and
// are removed together.
//
// The clock never repeats and never goes back: a second of wall time gives increments from 1, and
// while the wall clock is earlier, the last second stays. Committed is the majority point: equal to
// the newest entry, or earlier while Hold holds it.
//
// Log is safe for concurrent use. Append blocks only other writers.
//
// # Token
//
// A [Token] is a document {_data: "<hex>"}, with _typeBits where the key needs them. The hex text
// is a KeyString of: cluster time, version, token type (0 high watermark, 128 event), txnOpIndex,
// fromInvalidate, the collection's UUID, and the event's identifier. In version 1 (MongoDB 4.2 to
// 5.x) the identifier is the document key; in version 2 (6.0 and later) it is a document of
// operation type and document key or operation description, optionally followed by the number of a
// fragment. Version 1 leaves out missing parts at the end; version 2 writes a missing UUID as null.
// ParseToken answers malformed tokens with the server's codes.
//
// # Stream
//
// A [Stream] is $changeStream: it shows the changes of a collection, a database or the cluster from
// a starting point, through the stages of a pipeline.
//
//	oplog ─► scope ─► event ─► invalidate ─► resume ─► images ─► $match, $project ─► split ─► batch
//
// The order is the server's, and so are its consequences. Release 4.4 looks for the resume point
// before the stages of the user, 7.0 after them: there a changed $match that hides the token's
// event makes the stream fail. A $match may hide the invalidate event; the stream ends all the
// same.
//
// The position of a stream is its post-batch token: after an event that event's token, at the end
// of the log the high watermark of the newest entry that it looked at, when that is later. It is
// never later than an event that is still to be delivered.
//
// Lost history fails as it does in the server. A stream that starts at a time or a high watermark
// before the first entry fails with 286 when it first reads. On 4.4 a stream that resumes after an
// event that is gone reads on until the next event that is not the token's, and then fails with
// 280. A stream whose next entry is truncated fails with 136. A stream that is opened with batch
// size 0 reads nothing: it fails with the first getMore.
//
// A Stream belongs to one cursor and is not safe for concurrent use; any number of streams read one
// log.
package oplog
