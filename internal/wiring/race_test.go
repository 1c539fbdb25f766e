//go:build race

package wiring

// parallel is how many tests run at a time: the race detector makes all that compute several times slower.
const parallel = "3"
