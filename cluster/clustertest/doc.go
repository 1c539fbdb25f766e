// Package clustertest is a store of a cluster's state in memory for tests ([Memory]), in which
// leases run out by the test's clock, and nodes are cut off as the test wants; and the suites that
// every such store ([TestStore]) and every registry ([TestRegistry]) must pass.
//
// A [Transcript] writes down what happens when, in a bubble of testing/synctest, one line for each
// moment and event. What stands in testdata is what is to happen; the flag -rewrite writes that
// anew.
package clustertest
