// Package clustertest has an in-memory store of a cluster's state for tests ([Memory]), whose
// leases expire by the test's clock and from which a test can cut nodes off. It also has the suites
// that every such store ([TestStore]) and every registry ([TestRegistry]) must pass.
//
// A [Transcript] records the events of a test in a testing/synctest bubble, one line for each
// moment and event. The files in testdata are the expected transcripts; the flag -rewrite writes
// them again.
package clustertest
