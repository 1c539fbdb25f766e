// Package celval lets CEL work on BSON without decoding it.
//
// A document is a lazy [View] on its bytes: a field is found by walking, and only what an expression asks for becomes a value. Values
// compare as package bsonval says, which CEL's own operators do not: [ProgramOptions] replaces these. A field that is not there reads as
// null, and so do its fields; has() tells one from the other. To do with a value what its type does not allow is an error, never a silent no.
//
// Views read what MongoDB sent, but trust nothing: malformed bytes end in an error. What an expression walks is charged to a [Meter], so
// that no document, however large, makes a filter run long.
package celval
