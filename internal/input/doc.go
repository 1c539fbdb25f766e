// Package input says what a node accepts from its clients, before anything else looks at it: one
// table with a row for each text and list that a client chooses, in messages of gRPC and in
// requests over HTTP. A row says how long it may be, of which characters it is, and what it is
// charged to. Texts that become names (in keys of a store, labels of metrics, log lines and
// notices) are printable UTF-8.
//
// [Messages] checks messages on the wire, before memory is taken for them; [Query] checks requests
// over HTTP. Both fail closed: a field or parameter without a row is refused, and a test fails for
// it.
package input

//go:generate go test -run TestInputIsDocumented -args -rewrite
