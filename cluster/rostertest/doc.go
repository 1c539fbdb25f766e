// Package rostertest is what every store of the roster must pass ([Run]), and such a store in memory for tests ([Memory]), in which
// leases run out by a clock that the test has in its hand, and nodes are cut off as the test wants.
package rostertest
