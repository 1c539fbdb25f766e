package connect

import (
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/fanout"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/gateway/wire"
)

// batchMessage writes a batch for the wire.
func (s *Server) batchMessage(b *wire.Batch) *streampb.ConnectResponse {
	m := &streampb.Batch{
		Partition: uint32(b.Partition), From: position(b.From), To: position(b.To),
		Epoch: &streampb.Epoch{Incarnation: b.Epoch.Incarnation, Revision: b.Epoch.Revision},
	}
	if s.cfg.Cursors != nil {
		m.Cursor = s.cfg.Cursors.Seal(b.Partition, b.End)
	}
	if b.Loss != nil {
		m.Loss = lossMessage(b.Loss)
	}
	m.Events = make([]*streampb.Event, len(b.Events))
	for i := range b.Events {
		e := &b.Events[i]
		format := streampb.Format_FORMAT_BSON
		if e.Format == wire.JSON {
			format = streampb.Format_FORMAT_JSON
		}
		m.Events[i] = &streampb.Event{
			Position: &streampb.Position{Head: e.Head[:], Hashes: [][]byte{e.Hash[:]}}, Change: e.Payload, Format: format, Subscriptions: e.Subscriptions,
		}
	}
	return &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: m}}
}

func lossMessage(n *delivery.Notice) *streampb.Loss {
	kind := streampb.Loss_KIND_RESYNC
	if n.Kind == delivery.Rewound {
		kind = streampb.Loss_KIND_REWOUND
	}
	return &streampb.Loss{Kind: kind, Reason: n.Reason, Namespaces: n.Namespaces, Found: timestamppb.New(n.Found), Advice: n.Advice}
}

func position(p wire.Place) *streampb.Position {
	m := &streampb.Position{Head: p.Head[:]}
	for i := range p.Hashes {
		m.Hashes = append(m.Hashes, p.Hashes[i][:])
	}
	return m
}

// everywhere is the same place in every partition.
func everywhere(partitions int, p wire.Place) []*streampb.PartitionPosition {
	all, at := make([]*streampb.PartitionPosition, partitions), position(p)
	for i := range all {
		all[i] = &streampb.PartitionPosition{Partition: uint32(i), Position: at}
	}
	return all
}

func noticeMessage(n fanout.Notice) *streampb.ConnectResponse {
	return &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Notice{Notice: &streampb.Notice{
		Kind: n.Kind, Text: n.Text, At: timestamppb.New(n.At), Subscription: n.Subscription, Code: string(n.Code), Partitions: partitionsOf[uint32](n.Partitions),
	}}}
}

func rejected(id string, err error) *streampb.ConnectResponse {
	m := &streampb.Rejected{Id: id, Message: err.Error()}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		m.Code, m.Message, m.Remedy = string(f.Code), f.Err.Error(), f.Remedy()
	}
	return &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Rejected{Rejected: m}}
}

// refusal makes the status with which a stream ends. Faults tell their code and remedy, in the text and as error details.
func refusal(err error) error {
	if ended(err) {
		return nil
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		if _, isStatus := status.FromError(err); isStatus {
			return err
		}
		return status.FromContextError(err).Err()
	}
	return statusOf(f).Err()
}

// statusOf tells a fault's code and remedy, in the text and as error details.
func statusOf(f *fault.Error) *status.Status {
	s := status.New(statusCode(f.Code), f.Error()+"\n"+f.Remedy())
	detailed, err := s.WithDetails(&errdetails.ErrorInfo{Reason: string(f.Code), Domain: "streamer", Metadata: map[string]string{"remedy": f.Remedy()}})
	if err != nil {
		return s
	}
	return detailed
}

func statusCode(c fault.Code) codes.Code {
	switch c {
	case fault.SessionBadRequest, fault.SessionBadPosition, fault.SessionBadAck, fault.SessionBadCursor, fault.SessionOldCursor:
		return codes.InvalidArgument
	case fault.SessionReplaced:
		return codes.AlreadyExists
	case fault.SessionTooMany, fault.SessionTooWide, fault.SessionTooLarge, fault.AccessLimit:
		return codes.ResourceExhausted
	case fault.AccessUnauthenticated, fault.AccessTokenExposed:
		return codes.Unauthenticated
	case fault.AccessForbidden:
		return codes.PermissionDenied
	case fault.SessionSilent, fault.SessionStalled:
		return codes.DeadlineExceeded
	case fault.LogAhead:
		return codes.FailedPrecondition
	case fault.LogHistoryLost:
		return codes.DataLoss
	case fault.NodeStopping, fault.NodeDetached, fault.MongoUnreachable:
		return codes.Unavailable
	default:
		return codes.Internal
	}
}

// cursorRefused tells a client that a cursor was not used.
func cursorRefused(err error) fanout.Notice {
	return fanout.Notice{Kind: "cursor_refused", Text: err.Error() + ". The session goes on from the position.", Code: fault.Of(err), At: time.Now()}
}
