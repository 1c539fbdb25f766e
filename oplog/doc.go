// Package oplog reads MongoDB's oplog through change streams and serves it to cursors.
//
// A reader is one change stream and a ring of its whole replies. A node has one reader without end, the tail, and, while a cursor is
// further back than the tail's ring reaches, temporary ones, the catch-ups. Whoever reads is a [Cursor]: a place in a reader. N cursors
// cost MongoDB one stream.
//
//	MongoDB ─► fetch ─►(prefetch)─► split ─► ring: ▢ ▢ ▢ ▢ ▢        one reader
//	                                                ▲   ▲ ▲
//	                                              cursors
//
// # Continuity
//
// A reader proves that it misses nothing, once for everybody. Events that a reopened stream repeats are dropped by their position, and by
// a window of the events that passed lately. Where a stream was reopened in a way that proves nothing and cluster time jumps, the stretch
// is read again before anything of it is believed. What the oplog does not hold any more becomes a [Loss]: an entry with its place in the
// order of the events. So a cursor yields events, losses and progress, in order, and never an error about its place. The exception is a
// position later than the deployment itself, which is of another log ([ErrAhead]).
//
// # What full means
//
// The ring counts the bytes of its replies. When it is full the oldest reply is overwritten; cursors that still needed it go on in a
// catch-up and come back. The tail reads no further ahead of its live cursor than the prefetch, and overwrites nothing that this one needs.
// A catch-up waits a moment for cursors that it would leave behind, as long as they make progress.
//
// # Joining
//
// A cursor moves from a catch-up to the tail in one critical section: when the tail's ring holds everything after its position, it is
// placed there and skips what it has read. Nothing is missed and nothing comes twice. The number of catch-ups is bounded; cursors near
// each other share one, opened at the position of the rearmost; the tail pauses for a catch-up that does not come nearer.
//
// Who may block: [Cursor.Next] until there is something or the context ends; nothing else.
package oplog
