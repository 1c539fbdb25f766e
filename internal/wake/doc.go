// Package wake wakes loops that wait for a signal.
package wake
