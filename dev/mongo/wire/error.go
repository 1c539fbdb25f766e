package wire

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Code is a MongoDB error code.
type Code int32

// The codes that devmongo answers by name.
const (
	internalError                Code = 1
	BadValue                     Code = 2
	NoSuchKey                    Code = 4
	hostUnreachable              Code = 6
	hostNotFound                 Code = 7
	FailedToParse                Code = 9
	Unauthorized                 Code = 13
	TypeMismatch                 Code = 14
	Overflow                     Code = 15
	InvalidLength                Code = 16
	ProtocolError                Code = 17
	AuthenticationFailed         Code = 18
	IllegalOperation             Code = 20
	invalidBSON                  Code = 22
	NoReplicationEnabled         Code = 76
	StaleClusterTime             Code = 209
	NamespaceNotFound            Code = 26
	IndexNotFound                Code = 27
	CannotBackfillArray          Code = 15891
	PathNotViable                Code = 28
	ConflictingUpdateOperators   Code = 40
	CursorNotFound               Code = 43
	NoMatchingDocument           Code = 47
	NamespaceExists              Code = 48
	MaxTimeMSExpired             Code = 50
	FailPointSetFailed           Code = 167
	CommandNotFound              Code = 59
	WriteConcernFailed           Code = 64
	ImmutableField               Code = 66
	InvalidOptions               Code = 72
	InvalidNamespace             Code = 73
	networkTimeout               Code = 89
	shutdownInProgress           Code = 91
	WriteConflict                Code = 112
	CommandNotSupported          Code = 115
	CappedPositionLost           Code = 136
	primarySteppedDown           Code = 189
	InvalidUUID                  Code = 207
	TransactionTooOld            Code = 225
	IncompleteTransactionHistory Code = 217
	NoSuchTransaction            Code = 251
	CursorKilled                 Code = 237
	CursorInUse                  Code = 292
	InvalidResumeToken           Code = 260
	exceededTimeLimit            Code = 262
	TransactionCommitted         Code = 256
	ChangeStreamFatalError       Code = 280
	ChangeStreamHistoryLost      Code = 286
	MechanismUnavailable         Code = 334
	socketException              Code = 9001
	NotPrimary                   Code = 10107
	BSONObjectTooLarge           Code = 10334
	DuplicateKey                 Code = 11000
	interruptedAtShutdown        Code = 11600
	interrupted                  Code = 11601
	interruptedStateChange       Code = 11602
	NotPrimaryNoSecondaryOk      Code = 13435
	notPrimaryOrSecondary        Code = 13436
	UnrecognizedStage            Code = 40324
)

// Labels that drivers act on.
const (
	LabelTransient    = "TransientTransactionError"
	LabelRetryable    = "RetryableWriteError"
	LabelNonResumable = "NonResumableChangeStreamError"
)

// Error is the error reply to a failed command.
type Error struct {
	Code    Code
	Message string
	// Extra holds further BSON elements of the reply (E11000's keyPattern and keyValue).
	Extra []byte
}

// Errorf returns an *Error with a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d): %s", e.Code.Name(), e.Code, e.Message) }

// ErrorOf returns err as an *Error; any other error becomes InternalError with its text.
func ErrorOf(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Errorf(internalError, "%s", err.Error())
}

// HasCode reports whether err carries the code.
func HasCode(err error, code Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

// Retryable reports whether the server calls the code retriable, which is what decides the labels
// RetryableWriteError and TransientTransactionError.
func (c Code) Retryable() bool {
	return slices.Contains([]Code{
		hostUnreachable, hostNotFound, networkTimeout, shutdownInProgress, primarySteppedDown,
		exceededTimeLimit, socketException, NotPrimary, interruptedAtShutdown,
		interruptedStateChange, NotPrimaryNoSecondaryOk, notPrimaryOrSecondary,
	}, c)
}

// NonResumable reports whether a change stream that got the code must not be resumed.
func (c Code) NonResumable() bool {
	return c == ChangeStreamFatalError || c == ChangeStreamHistoryLost
}

// Name is the server's name of the code. Only the codes that devmongo answers itself, or that a
// fail point is likely to ask for, have one.
func (c Code) Name() string {
	name := map[Code]string{
		internalError: "InternalError", BadValue: "BadValue", hostUnreachable: "HostUnreachable", hostNotFound: "HostNotFound",
		FailedToParse: "FailedToParse", Unauthorized: "Unauthorized", TypeMismatch: "TypeMismatch", Overflow: "Overflow",
		InvalidLength: "InvalidLength", ProtocolError: "ProtocolError", AuthenticationFailed: "AuthenticationFailed", MechanismUnavailable: "MechanismUnavailable", IllegalOperation: "IllegalOperation",
		invalidBSON: "InvalidBSON", NoSuchKey: "NoSuchKey", NoReplicationEnabled: "NoReplicationEnabled", StaleClusterTime: "StaleClusterTime",
		NamespaceNotFound: "NamespaceNotFound", IndexNotFound: "IndexNotFound", PathNotViable: "PathNotViable",
		ConflictingUpdateOperators: "ConflictingUpdateOperators", CursorNotFound: "CursorNotFound", NoMatchingDocument: "NoMatchingDocument",
		NamespaceExists: "NamespaceExists", MaxTimeMSExpired: "MaxTimeMSExpired", FailPointSetFailed: "FailPointSetFailed",
		CommandNotFound: "CommandNotFound", WriteConcernFailed: "WriteConcernFailed", ImmutableField: "ImmutableField",
		InvalidOptions: "InvalidOptions", InvalidNamespace: "InvalidNamespace", networkTimeout: "NetworkTimeout",
		shutdownInProgress: "ShutdownInProgress", WriteConflict: "WriteConflict", CommandNotSupported: "CommandNotSupported",
		CappedPositionLost: "CappedPositionLost", primarySteppedDown: "PrimarySteppedDown", InvalidUUID: "InvalidUUID",
		TransactionTooOld: "TransactionTooOld", CursorKilled: "CursorKilled", IncompleteTransactionHistory: "IncompleteTransactionHistory",
		CursorInUse: "CursorInUse", NoSuchTransaction: "NoSuchTransaction", TransactionCommitted: "TransactionCommitted",
		InvalidResumeToken: "InvalidResumeToken", exceededTimeLimit: "ExceededTimeLimit", ChangeStreamFatalError: "ChangeStreamFatalError",
		ChangeStreamHistoryLost: "ChangeStreamHistoryLost", socketException: "SocketException", NotPrimary: "NotWritablePrimary",
		BSONObjectTooLarge: "BSONObjectTooLarge", DuplicateKey: "DuplicateKey", interruptedAtShutdown: "InterruptedAtShutdown",
		interrupted: "Interrupted", interruptedStateChange: "InterruptedDueToReplStateChange",
		NotPrimaryNoSecondaryOk: "NotPrimaryNoSecondaryOk", notPrimaryOrSecondary: "NotPrimaryOrSecondary", 63: "StaleShardVersion",
		133: "FailedToSatisfyReadPreference", 150: "StaleEpoch", 175: "QueryPlanKilled", 234: "RetryChangeStream", 464: "ShardRemovedError",
	}[c]
	return cmp.Or(name, "Location"+strconv.Itoa(int(c)))
}
