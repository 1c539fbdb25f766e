package mongodb

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mongostream/streamer/fault"
)

// A Class is the reaction that an error of a change stream requires.
type Class int

// The classes.
const (
	Transient   Class = iota // back off and resume
	BadToken                 // the token is unusable here; the log may still reach back: open by operation time, once
	Lost                     // the position has left the oplog
	Poison                   // an event too large to be delivered
	NoImage                  // an event without the requested image
	Credentials              // the server refuses the user: a password change may be under way
	Fatal                    // a person must act
)

// Codes of MongoDB's errors, grouped by the reaction that they require (server source,
// error_codes.yml).
//
//nolint:gochecknoglobals // constant tables
var (
	// ChangeStreamHistoryLost, CappedPositionLost, ShardRemovedError, OplogQueryMinTsMissing; 40576
	// and 40585 before 4.0.7.
	lostCodes = []int{286, 136, 464, 326, 40576, 40585}
	// InvalidResumeToken, ChangeStreamFatalError.
	tokenCodes = []int{260, 280}
	// FailedToParse, Overflow and the codes of malformed tokens.
	malformedCodes = []int{9, 15, 40647, 40648, 40649, 50811}
	// Unauthorized.
	rightsCodes = []int{codeUnauthorized}
	// UserNotFound, AuthenticationFailed, MechanismUnavailable, AtlasError: the server refuses the
	// user.
	credentialsCodes = []int{11, 18, 334, 8000}
	// BSONObjectTooLarge, also of an event; an event that cannot be split because one field is
	// larger than a fragment, or that has only an _id.
	tooLargeCodes = []int{10334, 7182500, 7182502}
	// InvalidOptions, SnapshotTooOld, SnapshotUnavailable: documents cannot be read as of a time,
	// because of the server, the collection or the age of the time.
	noSnapshotCodes = []int{72, 239, 246}
	// Transient errors: the server's categories NetworkError, Interruption, NotPrimaryError,
	// ShutdownError, ExceededTimeLimitError, StaleShardVersionError, RetriableError,
	// CancellationError and CloseConnectionError, and errors without a category: busy locks and
	// catalogues, elections and reconfigurations under way, shards and config servers that a router
	// does not find, overload.
	transientCodes = []int{
		6, 7, 24, 43, 46, 50, 63, 70, 74, 89, 90, 91, 94, 107, 109, 112, 117, 133, 134, 145, 149, 150, 172, 173, 175, 189, 194, 199, 202, 203, 215, 216, 230, 234,
		237, 249, 250, 262, 264, 272, 279, 290, 303, 304, 308, 310, 314, 317, 319, 342, 343, 355, 357, 358, 365, 372, 384, 407, 462, 9001, 10058, 10107, 11600,
		11601, 11602, 12586, 12587, 13388, 13435, 13436, 46841, 50915, 56846,
	}
)

const (
	codeUnauthorized  = 13
	codeNoImage       = 47    // NoMatchingDocument
	codeNotReplicaSet = 40573 // Location40573: the $changeStream stage is only supported on replica sets
)

// Classify returns the class of an error from opening or reading a change stream. An error that
// does not come from the server, or has an unknown code, counts as transient; the caller bounds the
// number of such errors in a row.
func Classify(err error) Class {
	server, ok := errors.AsType[mongo.ServerError](err)
	if !ok {
		return Transient
	}
	has := func(codes []int) bool { return slices.ContainsFunc(codes, server.HasErrorCode) }
	switch {
	case has(lostCodes):
		return Lost
	case has(tokenCodes):
		return BadToken
	case has(tooLargeCodes):
		return Poison
	case server.HasErrorCode(codeNoImage):
		return NoImage
	case has(credentialsCodes):
		return Credentials
	case has(malformedCodes), has(rightsCodes), server.HasErrorCode(codeNotReplicaSet):
		return Fatal
	}
	return Transient
}

// passingLabels are the labels of transient errors.
//
//nolint:gochecknoglobals // a constant table
var passingLabels = []string{"NetworkError", "ResumableChangeStreamError", "RetryableError", "SystemOverloadedError"}

// Passes reports whether the error is known to be transient.
func Passes(err error) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return !ok || slices.ContainsFunc(transientCodes, server.HasErrorCode) || slices.ContainsFunc(passingLabels, server.HasErrorLabel)
}

// Waits reports whether a server has answered with a transient error.
func Waits(err error) bool {
	_, answered := errors.AsType[mongo.ServerError](err)
	return answered && Passes(err)
}

// Denied reports whether the user lacks a right.
func Denied(err error) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && server.HasErrorCode(codeUnauthorized)
}

// AsFault gives the error of a MongoDB operation its fault code.
func AsFault(err error) error {
	if err == nil || fault.Of(err) != "" {
		return err
	}
	server, ok := errors.AsType[mongo.ServerError](err)
	has := func(codes []int) bool { return ok && slices.ContainsFunc(codes, server.HasErrorCode) }
	switch {
	case errors.Is(err, context.Canceled) && opening(err):
		return fault.New(fault.MongoUnreachable, cut(err))
	case errors.Is(err, context.Canceled):
		return err
	case has(rightsCodes):
		return fault.New(fault.MongoUnauthorized, err)
	case has(credentialsCodes):
		return fault.New(fault.MongoCredentials, err)
	case ok && server.HasErrorCode(codeNotReplicaSet):
		return fault.New(fault.MongoStandalone, err)
	case has(malformedCodes):
		return fault.New(fault.LogTokenRefused, err)
	case has(tooLargeCodes):
		return fault.New(fault.LogPoisonEvent, err)
	case certificate(err) != nil:
		return fault.New(fault.MongoCertificate, err)
	case ok && !server.HasErrorLabel("NetworkError"):
		return fault.New(fault.MongoRefused, err)
	}
	return fault.New(fault.MongoUnreachable, err)
}

// opening reports whether a connection could not be opened. The driver opens connections in
// contexts of its own. When a server closes one meanwhile, it cancels that context, and sometimes
// reports only this. Errors of an open connection name it.
func opening(err error) bool {
	conn, ok := errors.AsType[topology.ConnectionError](err)
	return ok && conn.ConnectionID == ""
}

// cut returns the error of a connection whose context the driver has canceled. It is not
// [context.Canceled], because no caller has ended the operation.
func cut(err error) error {
	return fmt.Errorf("the connection was closed while it was being opened: %v", err) //nolint:errorlint // see above
}

// certificate returns why one side refused the other's certificate, or did not speak TLS. It
// returns nil for all other errors, and if only some of the servers are affected.
func certificate(err error) error {
	if selection, ok := errors.AsType[topology.ServerSelectionError](err); ok && len(selection.Desc.Servers) > 0 {
		var first error
		for _, server := range selection.Desc.Servers {
			found := certificate(server.LastError)
			if found == nil {
				return nil
			}
			first = cmp.Or(first, found)
		}
		return first
	}
	for _, is := range []func(error) (error, bool){
		as[*tls.CertificateVerificationError], as[x509.CertificateInvalidError], as[x509.HostnameError], as[x509.UnknownAuthorityError],
		as[tls.AlertError], as[tls.RecordHeaderError],
	} {
		if found, ok := is(err); ok {
			return found
		}
	}
	// The other side's alert has a type of its own, which is not exported.
	if remote, ok := errors.AsType[*net.OpError](err); ok && remote.Op == "remote error" {
		return remote
	}
	return nil
}

func as[T error](err error) (error, bool) { //nolint:revive // as errors.AsType has it
	found, ok := errors.AsType[T](err)
	return found, ok
}
