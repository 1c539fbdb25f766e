// Package mark keeps marks in MongoDB, for a cluster whose store is MongoDB, and for a node without etcd also who owns them.
//
//	<cluster>.marks     one document for each partition: its epoch, its mark, its history
//	<cluster>.cluster   the origin with its backend, and the owner of all partitions, or who shares them through etcd
//	<cluster>.gaps      the gap log
//	<cluster>.rows      one document for each gateway: how far it got (package row)
//
// The fence is the epoch in each mark's document: a claim writes it there before it reads the position, and a save is an update of the
// document with that epoch, of the mark that was last seen. A rewind raises the epoch by a revision that no term has, in the update that
// moves the mark back; [Owner] finds the marks that stand above its claim when it renews, and claims above them. Adopting writes
// the new incarnation into the origin and into every document in one transaction.
package mark
