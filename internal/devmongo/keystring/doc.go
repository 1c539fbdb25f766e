// Package keystring is the codec of MongoDB's KeyString, version 1: a byte string whose plain order is the
// order of the BSON values in it. MongoDB uses it for index entries and, as hexadecimal text, for resume
// tokens; that is why devmongo speaks it exactly.
//
// A KeyString is a sequence of values and the byte 0x04. Each value begins with a type byte that sorts as
// the type does; numbers of all types share one encoding, so that 1, 1L and 1.0 are one key. What that
// loses is kept beside the key in type bits: for every string one bit, for every number two or more,
// decimals with the low six bits of their exponent. Type bits that are all zero (strings, 32-bit integers)
// are left out.
//
// Encoder appends values, Decode reads a key back. Decode never panics: a key that ends too early gives
// Overflow (15), an unknown type byte 50811, as the server answers them.
//
// Only ascending order is implemented, without record ids and discriminators, which indexes need and
// tokens do not. Decimals are encoded as the server does it: as the nearest double toward zero, with a
// continuation where that is not enough.
package keystring
