// Package admin is what an operator does to the subscribers of a cluster: look at them, rewind them, carry their checkpoints from one store
// to another, and adopt these after a restore. The commands of cmd/streamer ask and print; what is done, and what is refused, is here.
//
// Everything that writes goes through the store's fence. A rewind raises the generation of a checkpoint, so that the node that serves the
// subscriber goes where the operator has moved it. An import claims every partition as a node does, so that none can be running. Adopting ends
// every epoch that was given before.
//
// What is shown never contains a token, because a token contains a document's key: positions are shown by their time and a hash.
// Exports contain tokens, because checkpoints resume exactly with them only.
package admin
