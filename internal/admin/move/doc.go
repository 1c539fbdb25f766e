// Package move is what operators do to partitions while the nodes of a cluster run: have one handed over ([Handoff]), have a node emptied
// before it is stopped ([Drain]), and look at what moves, moved, and is wished ([List]).
//
// Nothing here moves anything. A directive is written into the store; the leader plans with it, and the owners hand over what the plan takes
// from them, as they do for every other reason. So two who wish at once cannot get into each other's way: of one partition the first pin
// stands, and whatever becomes of who wished, a pin runs out by itself. What is refused is refused before anything is wished, and the
// fault says why.
package move
