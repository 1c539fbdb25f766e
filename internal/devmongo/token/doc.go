// Package token encodes and decodes change stream resume tokens in MongoDB's own format.
//
// A token is a document {_data: "<hex>"}, with _typeBits where the key needs them. The hex text is a
// KeyString of: cluster time, version, token type (0 high watermark, 128 event), txnOpIndex, fromInvalidate,
// the collection's UUID, and the event's identifier: in version 1 (MongoDB 4.2 to 5.x) the document key, in
// version 2 (6.0 and later) a document of operation type and document key or operation description,
// optionally followed by the number of a fragment. Version 1 leaves out what is missing at the end; version
// 2 writes a missing UUID as null.
//
// Parse answers malformed tokens with the server's codes: 40647 and 40648 for wrong types, 9 for bad hex, 15
// for a key that ends early, 40649 for an empty one, 50811 for an unknown type byte, and the codes 50793 to
// 51057 for parts that are missing or of the wrong type.
package token
