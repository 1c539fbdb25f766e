// Package partition takes the batches of each partition to its handlers in order, drops what they have had, and knows how far they are.
//
// [Have] is the whole of it as a value: where a partition stands, which batches fit there, and what of them is new. It moves change by
// change, so that a batch that is interrupted goes on where it was, and by a whole batch at its end.
//
// A [Lane] is one partition's path: a queue, and a goroutine that hands what is new to the [Worker]. A [Set] is the lanes of a
// cluster. What a lane has not begun is dropped when its session ends, because another session sends it again. Batches of one partition may come from
// two sessions at a time, while it moves from node to node: each goes on by itself, and what both bring is handled once.
//
// A queue holds what Set.Push was let to take by the [Room] that all lanes share: it blocks while that is full.
package partition
