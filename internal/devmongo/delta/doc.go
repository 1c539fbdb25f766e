// Package delta builds the diffs of $v: 2 oplog entries, which servers log since 5.0, from the dotted paths of a
// change event.
package delta
