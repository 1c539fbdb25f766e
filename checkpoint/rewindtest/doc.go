// Package rewindtest is what every store of marks must pass beside checkpointtest: the history that it keeps, and what operators do
// to it, rewinding partitions and adopting a restored store.
package rewindtest
