// Package server is what the benchmark's contenders read from, as parts of the benchmark: the development MongoDB or a real one that
// a writer fills, and etcd.
//
// Both make the same data: each document of a collection is inserted and then updated in rotation. Every change has seq, which
// counts the document's changes from 1, and at, the wall clock in nanoseconds, so that whoever reads can tell whether anything is
// missing or out of order, and how long it took.
package server
