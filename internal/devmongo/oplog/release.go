package oplog

// Release is the MongoDB release whose shapes the log and its streams have.
type Release string

// The releases that devmongo can be.
const (
	R44 Release = "4.4"
	R70 Release = "7.0"
)

// Valid reports whether devmongo can be the release.
func (r Release) Valid() bool { return r == R44 || r == R70 }

// WallTime reports whether events carry wallTime (6.0 and later).
func (r Release) WallTime() bool { return r == R70 }

// TokenVersion is the version of the resume tokens.
func (r Release) TokenVersion() int32 {
	if r == R70 {
		return 2
	}
	return 1
}

// Deltas reports whether updates are logged as deltas, with truncated arrays, and pipelines' results too.
func (r Release) Deltas() bool { return r == R70 }
