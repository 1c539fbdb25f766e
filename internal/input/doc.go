// Package input checks everything that a node accepts from its clients, before any other code uses
// it. One table has a row for each text and list that a client chooses, in messages of gRPC and in
// requests over HTTP. A row has the length, the permitted characters, and the charge. Texts that
// become names (in keys of a store, labels of metrics, log lines and notices) are printable UTF-8.
//
// [Messages] checks messages on the wire, before the node allocates memory for them; [Query] checks
// requests over HTTP. Both fail closed: a field or parameter without a row is refused, and a test
// fails for it.
//
// # Not obvious, and the tests that guard it
//
//   - Client input is checked once, before it is decoded, by a table that has a row for every
//     field and parameter: input without a row is refused (input.TestEveryFieldIsBounded,
//     gateway.TestEveryServiceIsBounded, TestEveryEndpointRefusesUnknownParameters)
package input

//go:generate go test -run TestInputIsDocumented -args -rewrite
