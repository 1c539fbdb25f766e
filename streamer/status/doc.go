// Package status concludes how the partitions of a node do, from what their consumers, the tail and the survey tell, and tells it as
// metrics.
package status
