// Package blame reads a profile for people: where the time of a contender went that has missed what it was to reach. It asks
// `go tool pprof`, so that nothing of the format is known here; on a machine without Go there is no answer.
package blame
