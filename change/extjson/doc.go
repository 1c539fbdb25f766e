// Package extjson converts BSON to MongoDB Extended JSON v2, relaxed or canonical, directly from
// the bytes. It decodes nothing and allocates only the buffer.
// (https://github.com/mongodb/specifications, source/extended-json.)
//
// The output is that of the MongoDB driver for Go, byte for byte, except where the driver deviates
// from the specification:
//
//   - A fraction of a second has exactly three digits; the driver omits trailing zeros.
//   - The namespace of a DBPointer is escaped; the driver copies it.
//   - A Decimal128 whose coefficient has more than 34 digits is a zero; the driver writes 35
//     digits.
//   - Old binary data (subtype 2) may be empty; the driver writes its inner length as data.
//
// The output contains no line break, so that it fits into one line of a file and one field of a
// server-sent event. Invalid UTF-8 becomes U+FFFD, byte by byte. Duplicate names are kept. The
// output is at most twelve times as long as the BSON.
package extjson
