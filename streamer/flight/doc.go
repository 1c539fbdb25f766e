// Package flight keeps what has been sent to a partition's sessions and is not acknowledged.
package flight
