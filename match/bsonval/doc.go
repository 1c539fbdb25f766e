// Package bsonval compares BSON values without decoding documents.
//
// A [Scalar] is a value taken apart just far enough to compare it, by MongoDB's notion of equality and order within one kind of value, its
// [Class]:
//
//   - numbers (int32, int64, double, Decimal128) compare by their exact value, whatever their types; NaN equals nothing and has no order;
//   - null, undefined and a field that is not there are one: absent. Absent equals null and nothing else, and has no order (every <, <=, >,
//     >= is false);
//   - strings and symbols are strings; binary data of subtype 0 is bytes, other binary data equals only binary data of the same subtype;
//   - strings, bytes, booleans, dates and ObjectIds have an order among themselves; an order across kinds, or of a kind that has none, has no
//     meaning.
//
// The table for users is docs/filters.md. Nothing here trusts the bytes of nested documents: what is malformed is an error.
package bsonval
