// Package preflight judges what a node will find when it is started: MongoDB, its log, the store of checkpoints. It is given facts and asks
// nobody, so every judgement is a function of what it is told.
//
//	ok    as it should be
//	warn  a node runs, and something promised will not hold, or not for long
//	fail  a node does not start, or delivers nothing
//	skip  not tried, because a check that it needs has failed
//
// Whatever is not ok has a code, and with it a remedy.
package preflight
