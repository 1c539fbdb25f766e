//go:build !race

package node

// parallel is how many tests run at a time: most of what they do is to wait.
const parallel = "8"
