// Package rostertest is a store of the roster in memory for tests ([Memory]), in which leases run out by a clock that the test has in its
// hand, and nodes are cut off as the test wants. Package suite below it is what every store of the roster must pass.
package clustertest
