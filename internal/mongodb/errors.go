package mongodb

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongostream/streamer/fault"
)

// A Class says what an error of a change stream asks for.
type Class int

// The classes.
const (
	Transient Class = iota // back off and resume
	BadToken               // the token is unusable here; the log may still reach back: open by operation time, once
	Lost                   // the position is dead
	Poison                 // an event too large to be delivered
	NoImage                // an event without the image that was asked for
	Fatal                  // a person must act
)

// Codes of MongoDB's errors, grouped by what they ask for (server source, error_codes.yml).
//
//nolint:gochecknoglobals // constant tables
var (
	// ChangeStreamHistoryLost, CappedPositionLost, ShardRemovedError, OplogQueryMinTsMissing; 40576 and 40585 before 4.0.7.
	lostCodes = []int{286, 136, 464, 326, 40576, 40585}
	// InvalidResumeToken, ChangeStreamFatalError.
	tokenCodes = []int{260, 280}
	// FailedToParse, Overflow and the codes of tokens that are none.
	malformedCodes = []int{9, 15, 40647, 40648, 40649, 50811}
	// Unauthorized, AuthenticationFailed, AtlasError (which is about credentials).
	rightsCodes = []int{13, 18, 8000}
	// BSONObjectTooLarge, also of an event; an event that cannot be split because one field is larger than a fragment, or that has only an _id.
	tooLargeCodes = []int{10334, 7182500, 7182502}
	// InvalidOptions, SnapshotTooOld, SnapshotUnavailable: documents cannot be read as they were at a time, because this server, this collection or
	// the age of the time does not allow it.
	noSnapshotCodes = []int{72, 239, 246}
	// What passes by itself: cursors killed, elections, rollbacks, shutdowns, overload.
	transientCodes = []int{
		6, 7, 43, 63, 89, 91, 133, 150, 175, 189, 234, 237, 262, 317, 358, 365, 384, 407, 462, 9001, 10107, 11600, 11601, 11602, 13388, 13435, 13436,
	}
)

const (
	codeNoImage       = 47    // NoMatchingDocument
	codeNotReplicaSet = 40573 // Location40573: the $changeStream stage is only supported on replica sets
)

// Classify says what the error of an opened or read change stream asks for. An error that is not the server's own, or that has a
// code of no known meaning, counts as transient: the caller bounds how often in a row.
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
	case has(malformedCodes), has(rightsCodes), server.HasErrorCode(codeNotReplicaSet):
		return Fatal
	}
	return Transient
}

// Passes reports whether the error is one of those that are known to pass by themselves.
func Passes(err error) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return !ok || slices.ContainsFunc(transientCodes, server.HasErrorCode) ||
		server.HasErrorLabel("NetworkError") || server.HasErrorLabel("ResumableChangeStreamError")
}

// Denied reports whether the user lacks a right.
func Denied(err error) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && server.HasErrorCode(13)
}

// AsFault gives an error that a person must act upon its code.
func AsFault(err error) error {
	if err == nil || fault.Of(err) != "" {
		return err
	}
	server, ok := errors.AsType[mongo.ServerError](err)
	has := func(codes []int) bool { return ok && slices.ContainsFunc(codes, server.HasErrorCode) }
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case has(rightsCodes):
		return fault.New(fault.MongoUnauthorized, err)
	case ok && server.HasErrorCode(codeNotReplicaSet):
		return fault.New(fault.MongoStandalone, err)
	case has(malformedCodes):
		return fault.New(fault.LogTokenRefused, err)
	case has(tooLargeCodes):
		return fault.New(fault.LogPoisonEvent, err)
	case ok:
		return fault.New(fault.MongoRefused, err)
	case authentication(err):
		return fault.New(fault.MongoUnauthorized, err)
	}
	return fault.New(fault.MongoUnreachable, err)
}

// authentication reports whether a connection failed because of its credentials: the driver then reports that no server could be
// selected and keeps the server's answer as the cause.
func authentication(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if command, ok := err.(interface{ HasErrorCode(int) bool }); ok && slices.ContainsFunc(rightsCodes, command.HasErrorCode) {
			return true
		}
	}
	return false
}
