// Package partition takes the batches of each partition to its handlers in order, drops what they have had, and knows how far they are.
//
// [Have] is the whole of it as a value: where a partition stands, which batches fit there, and what of them is new. It moves change by
// change, so that a batch that is interrupted goes on where it was, and by a whole batch at its end.
//
// A [Lane] is one partition's path: a queue, and a goroutine that hands what is new to the [Worker]. A [Set] is the lanes of a
// cluster. What a lane has not begun is dropped when its session ends, because the next session sends it again.
//
// A queue holds what Set.Push was let to take by the [Room] that all lanes share: it blocks while that is full.
package partition
