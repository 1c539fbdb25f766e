// Package flight keeps what has been sent to a partition's sessions and is not acknowledged, and where they stood when its term ended.
package flight
