// Package expr compiles and evaluates the expressions of filters: CEL over the variables doc,
// before, key, update, op and ns.
//
// [Check] parses and type-checks an expression; [Checked.Reads] predicts the values that it reads.
// An [Expression] is evaluated on the [Facts] of an event. Some facts may be unknown: the document
// of a delete, or any document when a collection is dropped. The [Verdict] is then Unknown, unless
// it is the same for every value.
//
// A comparison of a field with constants becomes a [Predicate], which has the same result as CEL at
// a fraction of the cost and can be indexed.
//
// # Values
//
// A [Scalar] is a BSON value prepared for comparison. It follows MongoDB's equality and order
// within one [Class]:
//
//   - numbers (int32, int64, double, Decimal128) compare by exact value, whatever their types; NaN
//     equals nothing and has no order;
//   - null, undefined and a missing field are absent. Absent equals absent only and has no order
//     (<, <=, > and >= are false);
//   - strings and symbols are strings; binary data of subtype 0 is bytes, other binary data equals
//     only data of the same subtype;
//   - strings, bytes, booleans, dates and ObjectIds are ordered among themselves; values of
//     different classes have no order.
//
// docs/filters.md has the table for users.
//
// # CEL on BSON
//
// CEL sees a document as a lazy view of its bytes, and only fields that an expression reads become
// values. CEL's own operators are replaced, because they compare differently. A missing field reads
// as null, and so do its fields; has() distinguishes the two. An operation that a type does not
// allow is an error. Malformed bytes are an error. A meter counts the bytes that an expression
// walks, so that no document makes a filter run long.
package expr
