// Package update applies MongoDB updates to documents and says what changed: whole replacements, the
// modifiers $set, $setOnInsert, $unset, $inc, $min, $max, $push and $currentDate with dotted paths and array
// indexes, and aggregation pipelines of $set.
//
// Parse compiles an update once; Apply makes a new document from an old one and returns, beside it, the
// fields that were set and removed, as an oplog entry and a change event name them. An update that changes
// nothing says so, and causes neither.
//
// Fields change in the server's order: sorted by path, array indexes as numbers; new fields are appended.
// What MongoDB knows and devmongo does not is refused with CommandNotSupported (115), what MongoDB does not
// know with its FailedToParse (9).
package update
