// Package doc reads, builds and prints BSON documents as bytes, and encodes values as KeyStrings.
//
// Package wire has checked every document that came from a client, and devmongo builds only valid
// ones. So walking a document trusts its lengths and returns no errors: the walk ends at an
// unreadable element. Values alias the document that they were read from; copy a value to keep it.
//
// # KeyString
//
// A KeyString (version 1) is a byte string that sorts as the BSON values in it do. MongoDB uses it
// for index entries and, as hexadecimal text, for resume tokens. It is a sequence of values and the
// byte 0x04. Each value begins with a byte for its type. Numbers of all types share one encoding,
// so 1, 1L and 1.0 are one key. Separate type bits preserve the types: one bit for a string, two or
// more for a number, and also the low six bits of the exponent for a decimal. Type bits that are
// all zero (strings, 32-bit integers) are left out.
//
// [KeyEncoder] appends values, [DecodeKey] reads a key back. DecodeKey never panics: a key that
// ends too early gives Overflow (15), an unknown type byte 50811, as the server answers them. Only
// ascending order is implemented, without the record ids and discriminators of indexes. A decimal
// is encoded as the server does it: as the nearest double toward zero, with a continuation where
// that is not exact.
package doc
