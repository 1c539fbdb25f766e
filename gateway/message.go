package gateway

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/access"
	"github.com/mongostream/streamer/gateway/streampb"
)

// batchMessage returns the message for a batch.
func batchMessage(b *delivery.Batch) any {
	switch {
	case b.Snapshot != nil:
		return &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: &streampb.Batch{
			Seq: b.Seq, To: b.To.Ref().Append(nil), Snapshot: snapshotMessage(b.Snapshot), Detached: partitionsOf[uint32](b.Detached),
		}}}
	case b.Loss == nil:
		return newFrame(b)
	}
	kind := streampb.Loss_KIND_RESYNC
	if b.Loss.Kind == delivery.Rewound {
		kind = streampb.Loss_KIND_REWOUND
	}
	return &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: &streampb.Batch{
		Seq: b.Seq, To: b.To.Ref().Append(nil), Detached: partitionsOf[uint32](b.Detached),
		Loss: &streampb.Loss{
			Kind: kind, Reason: b.Loss.Reason, From: timeOf(b.Loss.From), To: boundOf(b.Loss), Namespaces: b.Loss.Namespaces,
			Found: timestamppb.New(b.Loss.Found), Advice: b.Loss.Advice, Generation: b.Loss.Generation,
		},
	}}}
}

func snapshotMessage(m *delivery.SnapshotMark) *streampb.Snapshot {
	state := streampb.Snapshot_STATE_BEGUN
	switch m.State {
	case delivery.SnapshotDone:
		state = streampb.Snapshot_STATE_DONE
	case delivery.SnapshotCancelled:
		state = streampb.Snapshot_STATE_CANCELLED
	case delivery.SnapshotBegun:
	}
	return &streampb.Snapshot{Subscription: m.Subscription, State: state, Reason: string(m.Reason), Read: m.Read, Estimated: m.Estimated, Namespaces: m.Namespaces}
}

// timeOf returns the time of a position, nil if it is unknown.
func timeOf(p change.Position) *timestamppb.Timestamp {
	if p.IsZero() {
		return nil
	}
	return timestamppb.New(p.Time.Time())
}

// boundOf returns the end of a loss, rounded up to seconds so that it is never too early.
func boundOf(l *delivery.Loss) *timestamppb.Timestamp {
	to := timeOf(l.To)
	if to != nil && l.Kind == delivery.Resync && l.To.Time.I > 0 {
		to.Seconds++
	}
	return to
}

func formatOf(f delivery.Format) streampb.Format {
	if f == delivery.JSON {
		return streampb.Format_FORMAT_JSON
	}
	return streampb.Format_FORMAT_BSON
}

func noticeMessage(n delivery.Notice) *streampb.ConnectResponse {
	return &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Notice{Notice: &streampb.Notice{
		Kind: n.Kind, Text: n.Text, At: timestamppb.New(n.At), Subscription: n.Subscription, Code: string(n.Code), Partitions: partitionsOf[uint32](n.Partitions),
	}}}
}

func rejected(id string, err error) *streampb.ConnectResponse {
	code, text, remedy := fault.Public(err)
	m := &streampb.Rejected{Id: id, Code: string(code), Message: text, Remedy: remedy}
	return &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Rejected{Rejected: m}}
}

// partitionsOf converts partitions to or from their wire type.
func partitionsOf[To, From ~uint32](partitions []From) []To {
	all := make([]To, len(partitions))
	for i, p := range partitions {
		all[i] = To(p)
	}
	return all
}

// ended reports whether an error is an ordinary end of a connection.
func ended(err error) bool {
	return err == nil || errors.Is(err, errLeft) || errors.Is(err, delivery.ErrClosed)
}

// isGone reports whether a context has ended because its client has gone, and not because the
// server ended it.
func isGone(ctx context.Context) bool { return ctx.Err() != nil && fault.Of(context.Cause(ctx)) == "" }

// reasonOf returns why a session has ended, for the metric. The context is that of its call.
func reasonOf(ctx context.Context, err error) string {
	if isGone(ctx) || ended(err) {
		return "left"
	}
	switch code := fault.Of(err); code {
	case fault.SessionSilent:
		return "silent"
	case fault.SessionStalled:
		return "stalled"
	case fault.LogHistoryLost, fault.LogAhead:
		return "lost"
	case fault.SessionReplaced, fault.SessionRenewed:
		return "replaced"
	case fault.SessionFilterCostly:
		return "costly"
	case fault.AccessUnauthenticated:
		return "revoked"
	case fault.NodeStopping:
		return "stopped"
	case fault.AccessLimit, fault.SessionTooMany:
		return "limited"
	default:
		if code == "" || statusCode(code) == codes.Internal {
			return "failed"
		}
		return "refused"
	}
}

// refusal returns the gRPC status for an error, with the details that clients may see. Faults carry
// code and remedy in the text and as error details.
func refusal(err error) error {
	if ended(err) {
		return nil
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		if _, isStatus := status.FromError(err); isStatus {
			return err
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return status.FromContextError(err).Err()
		}
		_, text, _ := fault.Public(err)
		return status.New(codes.Internal, text).Err()
	}
	return statusOf(f).Err()
}

// statusOf returns the status of a fault, with code and remedy in the text and as error details.
func statusOf(f *fault.Error) *status.Status {
	code, text, _ := fault.Public(f)
	s := status.New(statusCode(code), string(code)+": "+text+"\n"+f.Remedy())
	detailed, err := s.WithDetails(&errdetails.ErrorInfo{Reason: string(f.Code), Domain: "streamer", Metadata: map[string]string{"remedy": f.Remedy()}})
	if err != nil {
		return s
	}
	return detailed
}

// holdBack delays the report of an error that the client has caused, if its identity has caused
// many recently.
func holdBack(ctx context.Context, accounts *access.Accounts, err error) {
	if fault.Of(err) == "" || accounts == nil {
		return
	}
	switch statusCode(fault.Of(err)) { //nolint:exhaustive // the others are the node's
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.ResourceExhausted, codes.PermissionDenied:
		accounts.Refused(ctx, access.From(ctx))
	}
}

func statusCode(c fault.Code) codes.Code {
	switch c {
	case fault.SessionBadRequest, fault.SessionBadPosition, fault.SessionBadAck, fault.SessionUnwatched:
		return codes.InvalidArgument
	case fault.SessionUnknown:
		return codes.NotFound
	case fault.SessionReplaced:
		return codes.AlreadyExists
	case fault.SessionTooMany, fault.SessionTooWide, fault.SessionTooLarge, fault.SessionFilterCostly, fault.AccessLimit:
		return codes.ResourceExhausted
	case fault.AccessUnauthenticated, fault.AccessTokenExposed:
		return codes.Unauthenticated
	case fault.AccessForbidden:
		return codes.PermissionDenied
	case fault.SessionSilent, fault.SessionStalled, fault.SessionUnacknowledged:
		return codes.DeadlineExceeded
	case fault.LogAhead:
		return codes.FailedPrecondition
	case fault.LogHistoryLost:
		return codes.DataLoss
	case fault.NodeStopping, fault.MongoUnreachable, fault.CheckpointUnreadable, fault.SessionRenewed:
		return codes.Unavailable
	default:
		return codes.Internal
	}
}
