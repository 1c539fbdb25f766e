//go:build race

package process

// raced says that the tests, and so the program, run with the race detector, which makes them
// several times slower.
const raced = true

// pace is how much longer things may take than they may for users.
const pace = 2
