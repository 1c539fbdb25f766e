// Package streampb is the protocol between nodes and gateways, generated from proto/streamer/v1 by
// make proto.
package streampb

//go:generate go test -run TestProtocolIsDocumented -args -rewrite
