// Package checkpoint keeps what a restart needs: where each partition stands, and where the first start began.
//
// A [Mark] is the saved position of one partition. Everything before it has been acknowledged; whatever comes behind it is
// delivered again after a crash. An [Origin] is written once, by the first start: a partition that has no mark begins there.
//
// # The fence
//
// Every mark carries the epoch of the term that wrote it. A store takes a mark only while that epoch owns the partition
// and only if the mark's position stands behind the stored one; a deposed owner gets [ErrFenced], and a write that arrives
// late can undo nothing.
//
// Marks never move backwards except by an operator's rewind ([Rewinder]), which is one transaction that moves the mark, counts its
// generation up and ends the term. After a restored backup of the store or of MongoDB an operator adopts the marks ([Adopter]): the
// origin's incarnation rises, which ends every epoch before, those included that a restored store would give once more.
//
// # Beside the marks
//
// The history keeps the last marks of each partition that mean something, and one a minute of the others, written in the transaction of
// the mark. The gap log ([Gap]) keeps what could not be read any more; no mark passes a gap that is not in it.
//
// # Who saves when
//
// The [Manager] saves, off the path of the events: a partition is due after an interval (5 s) or a number of events (1000);
// when one is due, all that have moved are saved together. Rounds are at least two seconds apart, so a node costs its store
// at most a few transactions in five seconds, whatever the load. A partition on which nothing happens is saved seldom, but
// always well within the reach of the oplog.
//
//	consumer ──low-water──► Manager ──[]Mark──► Store (etcd, MongoDB, memory)
//	                           └──ErrFenced──► the term ends
//
// The port [Store] and those beside it have three implementations, which all pass checkpointtest, rewindtest and gaptest. Package record
// is the form in which two of them keep what they are given.
package checkpoint
