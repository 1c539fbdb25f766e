//go:build race

package simulation

// The race detector makes everything eight times as slow.
const slowed = 8
