package gateway

import (
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
)

// statusDetails is the trailer that carries a status in full (grpc.io, "Richer error model").
const statusDetails = "grpc-status-details-bin"

// foretellTooLarge has a client that sends a message above the limit told so with code and remedy. gRPC itself ends such a stream, before
// anybody here hears of it, with a status of its own, and sends the trailers that are set by then: so they are set at the beginning. The
// function that it returns, to be called with the error with which the stream ends otherwise, takes them back: a status with details has gRPC
// forget them, and beside one without a second value makes clients ignore both.
func foretellTooLarge(stream streampb.Gateway_ConnectServer, ended *error) (takeBack func()) {
	told, err := proto.Marshal(statusOf(fault.Newf(fault.SessionTooLarge, "the message was not read: it is larger than %d bytes", maxRequest)).Proto())
	if err != nil {
		return func() {} // then it is gRPC's own text
	}
	trailer := metadata.Pairs(statusDetails, string(told))
	stream.SetTrailer(trailer)
	return func() {
		if len(status.Convert(*ended).Details()) == 0 {
			stream.SetTrailer(trailer)
		}
	}
}
