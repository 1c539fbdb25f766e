// Package rescan reads documents again after a loss, so that subscribers get the state that they missed the changes to.
//
// A page of documents is read with majority concern together with the operation time of that reading. Each document enters its lane when
// the lane has reached that time, unless the stream has changed it since, so that none goes back in time; the next page is read when the
// subscribers have acknowledged this one. How far a collection has been read is saved with each page, so that a crash goes on there.
//
//	page read at T ──► lanes at T: documents, without those that changed behind T ──► acknowledged ──► saved ──► next page
//
// Whoever missed a deletion is not told of it by the documents that are left: a rescan comes beside the notice of a loss, not in its place.
package rescan
