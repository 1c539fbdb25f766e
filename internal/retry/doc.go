// Package retry waits between attempts: longer after each failure, up to a bound, and a random half
// of it, so that nodes that failed together do not come back together.
package retry
