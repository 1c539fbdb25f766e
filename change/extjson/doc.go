// Package extjson writes BSON as MongoDB Extended JSON v2, relaxed or canonical, straight from the bytes: nothing is decoded, and nothing is
// allocated but room in the buffer. (https://github.com/mongodb/specifications, source/extended-json.)
//
// The text is that of the MongoDB driver for Go, byte for byte, except where that one differs from the specification:
//
//   - A fraction of a second has exactly three digits; the driver leaves out trailing zeros.
//   - The namespace of a DBPointer is escaped like any string; the driver copies it as it is.
//   - A Decimal128 whose coefficient has more than 34 digits is a zero; the driver writes 35 digits.
//   - Old binary data (subtype 2) may be empty; the driver writes its inner length as data.
//
// No text has a line break in it, so that it fits into one line of a file and one field of a server-sent event. Invalid UTF-8 becomes
// U+FFFD, byte by byte. Names that are there twice are written twice. A text is at most twelve times as long as its BSON.
package extjson
