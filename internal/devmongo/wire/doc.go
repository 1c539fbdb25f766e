// Package wire reads and writes MongoDB's wire protocol: OP_MSG with document sequences and checksums,
// and OP_QUERY with its OP_REPLY, which drivers use once for their first handshake.
//
// ReadMessage takes one whole message from a stream and checks it to the last byte: lengths, the kinds of
// its sections, the checksum, and every BSON document in it, nested ones too. After that, the rest of
// devmongo may walk documents without fear of a bad length. Whatever is not well formed is an error of the
// connection, never a panic; the caller closes the connection.
//
// Reference: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/
package wire
