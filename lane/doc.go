// Package lane carries events from the log to the partitions' pipelines: readers, rings and cursors.
//
// A reader is one change stream and a ring of its whole replies. The node has one reader without end, the tail, and, while a
// cursor stands further back than the tail's ring reaches, temporary ones, the catch-ups. Everything that reads, each
// partition's lane and each session that follows the whole log, is a [Cursor]: a place in a reader. N cursors cost MongoDB
// one stream.
//
//	MongoDB ─► fetch ─►(prefetch)─► split ─► ring: ▢ ▢ ▢ ▢ ▢        one reader
//	                                                ▲   ▲ ▲
//	                                             cursors (lanes, sessions)
//
// # What full means
//
// The ring counts the bytes of its replies. When it is full the oldest reply is overwritten, which leaves cursors that still
// stood in it behind; they go on through a catch-up and come back. So a slow lane never slows the others. Before that a new reply
// waits for the lanes that it would leave behind, as long as one of them gets on every 15 ms: in a backlog most have only not had
// their turn yet. The tail fetches only while its foremost cursor is near its end: when all cursors are slow, the tail waits.
//
// # Joining
//
// A cursor moves from a catch-up to the tail in one critical section: when its position is at or behind the base of the tail's
// ring, the position behind which the ring holds everything, it is placed there and skips what it has seen. Nothing is missed
// and nothing comes twice. Catch-ups are a budget; cursors near each other share one, opened at the position of the
// rearmost; a catch-up that comes no nearer to the tail for a while pauses the tail.
//
// # What is lost
//
// Where the log no longer holds a cursor's position, its catch-up is opened at the earliest place behind that really holds, found by
// opening streams: the oldest entry itself cannot be opened on older servers, and may be gone a moment after it was seen. The cursor
// hands out the loss, which ends there, and goes on there with the next call. Where nothing else is left that place is the tail's
// beginning. A position that is refused although the log should have it is an error: it may pass.
//
// # Order
//
// A reader's ring is in strict order of positions: what a reopened stream repeats is dropped before it enters. A cursor of a
// partition sees the partition's events, and those of no document (a drop), in that order.
//
// Who may block: [Cursor.Next] until there is something or the context ends; nothing else.
package lane
