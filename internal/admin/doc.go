// Package admin is what an operator does to the marks of a cluster: look at them, rewind partitions, carry marks from one store to
// another, and adopt them after a restore. The commands of cmd/streamer ask and print; what is done, and what is refused, is here.
//
// Everything that writes goes through the fence of the store. A rewind ends the term of its partition, and a running node claims it
// again and delivers from the new position on. An import claims every partition as a node does, so none can be running. Adopting ends
// every epoch that was given before.
//
// What is shown never contains a token, because a token contains a document's key: positions are shown by their time and a hash.
// Exports contain tokens, because marks are no use without.
package admin
