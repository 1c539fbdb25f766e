package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mongostream/streamer/fault"
)

// withCode adds the fault code to an error of etcd. Errors of the caller's context stay unchanged.
func withCode(err error) error {
	if fault.Of(err) != "" || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if _, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return fault.New(fault.EtcdRefused, err)
	}
	if status.Code(err) == codes.Unavailable {
		return fault.New(fault.EtcdUnreachable, err)
	}
	return err
}

// unknown reports whether a request that failed with this error may have been executed, or may
// still be.
func unknown(err error) bool {
	if answer, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return answer.Code() == codes.Unavailable
	}
	failure, ok := status.FromError(err)
	return ok && slices.Contains([]codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Unknown}, failure.Code())
}

// watchMax bounds the life of one watch in an endless series. A watch waits silently for the
// revision that it starts at, or has reached: after etcd was restored from a backup, that may take
// very long.
const watchMax = 30 * time.Second

// sayAgain is the pause before the retry of a request with an unknown outcome.
const sayAgain = 50 * time.Millisecond

// retryUncertain retries an idempotent request until its outcome is known, or the context ends.
func retryUncertain(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || !unknown(err) {
			return err
		}
		if pauseFor(ctx, sayAgain) != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
