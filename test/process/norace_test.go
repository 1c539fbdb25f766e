//go:build !race

package process

// raced says that the tests, and so the program, run with the race detector.
const raced = false

// pace is how much longer things may take than they may for users.
const pace = 1
