// Package wire reads and writes MongoDB's wire protocol: OP_MSG with document sequences and
// checksums, OP_QUERY and OP_REPLY, which drivers use once for their first handshake, the batches
// of documents in replies, and error codes.
//
// ReadMessage takes one whole message from a stream and checks it to the last byte: lengths,
// sections, the checksum, and every BSON document in it, nested ones too. The rest of devmongo may
// then walk documents without further checks. A malformed message is an error of the connection,
// never a panic; the caller closes the connection.
//
// Every package of devmongo returns *[Error] where a client is to see a particular code; any other
// error reaches the client as InternalError (1). Codes and names are those of MongoDB's
// error_codes.yml; a code without a name is printed as "Location<code>", as the server does.
//
// Reference: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/
package wire
