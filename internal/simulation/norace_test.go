//go:build !race

package simulation

const slowed = 1
