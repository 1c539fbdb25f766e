// Package stream is $changeStream: a cursor over the oplog that shows the changes of a collection, a database or
// the whole cluster, from a point on, through the stages of a pipeline.
//
//	oplog ─► scope ─► event ─► invalidate ─► resume ─► images ─► $match, $project ─► split ─► batch
//
// The order is the server's, and so are the consequences. On release 4.4 the resume point is looked for before
// the stages of the user, on 7.0 after them: there a changed $match that hides the token's event makes the
// stream fail. A $match may hide the invalidate event; the stream ends all the same.
//
// Where a stream stands is its post-batch token (Token): after an event that event's token, at the end of the
// log the high watermark of the newest entry looked at, when that is later. It never overtakes an event that
// is still to be delivered.
//
// Lost history shows itself as it does in the server: a stream that starts at a time or at a high watermark
// before the first entry fails with 286 when it first reads; on 4.4 one that resumes after an event that is
// gone reads on in silence until the next event that is not the token's, which fails it with 280; one that
// stood in the log while it was cut gets 136. Nothing is read while a stream is opened with batch size 0: then
// the failure comes with the first getMore.
//
// A Stream belongs to one cursor and is not safe for concurrent use; any number of streams read one log.
package stream
