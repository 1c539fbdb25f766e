//go:build race

package node

// parallel is how many tests run at a time: the race detector makes all that compute several times
// slower.
const parallel = "3"
