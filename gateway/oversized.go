package gateway

import (
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
)

// statusDetails is the trailer that carries a complete status (grpc.io, "Richer error model").
const statusDetails = "grpc-status-details-bin"

// presetTooLarge makes gRPC report an oversized request with code and remedy. gRPC ends such a
// stream with its own status before a handler can, but sends trailers that were set earlier: so the
// trailer is set in advance. Call the returned function at the end with the error of the stream. It
// removes the trailer if the status has no details. A status with details overwrites the trailer;
// clients ignore duplicate values.
func presetTooLarge(stream streampb.Gateway_ConnectServer, ended *error) (remove func()) {
	encoded, err := proto.Marshal(statusOf(fault.Newf(fault.SessionTooLarge, "message rejected: larger than %d bytes", maxRequest)).Proto())
	if err != nil {
		return func() {} // gRPC's own text is used
	}
	trailer := metadata.Pairs(statusDetails, string(encoded))
	stream.SetTrailer(trailer)
	return func() {
		if len(status.Convert(refusal(*ended)).Details()) == 0 {
			stream.SetTrailer(trailer)
		}
	}
}
