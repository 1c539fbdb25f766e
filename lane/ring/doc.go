// Package ring holds replies of a change stream: each is a [Slot], walked once and sorted by partition by a [Splitter], and a [Ring]
// keeps the last slots within a bound of bytes. It is pure: no goroutines, no clock, no locks.
package ring
