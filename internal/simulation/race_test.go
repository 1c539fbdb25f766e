//go:build race

package simulation

// The race detector makes everything eight times as slow, and CI runs all seeds without it too.
const slowed = 32
