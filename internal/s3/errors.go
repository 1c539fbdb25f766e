package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/retention"
)

// explain returns the error of a request as the port's contract says, or as a fault with a remedy.
func (b *Bucket) explain(ctx context.Context, verb string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	answer, answered := errors.AsType[minio.ErrorResponse](err)
	if !answered {
		return fault.New(unanswered(err), fmt.Errorf("%s in bucket %s: %w", verb, b.location.Bucket, err))
	}
	switch {
	case answer.Code == minio.NoSuchKey:
		return retention.ErrNotFound
	case answer.StatusCode == http.StatusPreconditionFailed:
		return retention.ErrExists
	}
	code := codeOf(answer)
	if verb == "put" && answer.StatusCode == http.StatusNotImplemented { // of the header If-None-Match
		code = fault.RetentionCondition
	}
	return fault.Newf(code, "%s in bucket %s: the store answered %d %s: %s", verb, b.location.Bucket, answer.StatusCode, short(answer.Code), described(answer))
}

// unanswered returns the code of an error without an answer of the store.
func unanswered(err error) fault.Code {
	switch {
	case errors.Is(err, errNoCredentials):
		return fault.RetentionForbidden
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fault.RetentionStore
	}
	return fault.RetentionUnreachable
}

// codeOf returns the code of an answer. S3 has several names for most causes, and other stores have
// further ones: where the name says nothing, the status does.
func codeOf(answer minio.ErrorResponse) fault.Code {
	switch answer.Code {
	case "RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture":
		return fault.RetentionClock
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "InvalidRegion", "IllegalLocationConstraintException", "IncorrectEndpoint":
		return fault.RetentionRegion
	case "NoSuchBucket", "InvalidBucketName":
		return fault.RetentionBucket
	case "ExpiredToken", "InvalidToken", "TokenRefreshRequired":
		return fault.RetentionForbidden
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.RetentionForbidden
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect:
		return fault.RetentionRegion
	}
	return fault.RetentionStore
}

// described returns the text of an answer, and the region that it names.
func described(answer minio.ErrorResponse) string {
	text := short(answer.Message)
	if answer.Region != "" {
		text += " (the bucket is in " + short(answer.Region) + ")"
	}
	return text
}

// short returns one line of a text, and not much of it: it may be a page of a proxy.
func short(text string) string {
	const most = 200
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
