package oplog

// Release is a MongoDB release, as its first two numbers.
type Release string

// The releases that devmongo can be.
const (
	R44 Release = "4.4"
	R60 Release = "6.0"
	R70 Release = "7.0"
	R80 Release = "8.0"
)

// Since reports whether the release is the other one or a later one. All have majors of one digit.
func (r Release) Since(other Release) bool { return r >= other }

// WallTime reports whether events carry wallTime.
func (r Release) WallTime() bool { return r.Since(R60) }

// tokenVersion is the version of the resume tokens.
func (r Release) tokenVersion() int32 {
	if r.Since(R70) {
		return 2
	}
	return 1
}

// Deltas reports whether updates are logged as deltas, with truncated arrays, and pipelines' results too (since 5.0).
func (r Release) Deltas() bool { return r.Since(R60) }

// WireVersion is the newest version of the wire protocol.
func (r Release) WireVersion() int32 {
	return map[Release]int32{R44: 9, R60: 17, R70: 21, R80: 25}[r]
}
