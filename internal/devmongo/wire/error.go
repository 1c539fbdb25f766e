package wire

import (
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
	authenticationFailed         Code = 18
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

// Error is one failed command: what the error reply carries.
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

// ErrorOf returns err as an *Error; what is none becomes InternalError with its text.
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

// KeyString is a complaint about the bytes of a KeyString.
func KeyString(code Code, text string) *Error {
	return Errorf(code, "KeyString format error: %s", text)
}

// PastEnd is a complaint about bytes that are not there.
func PastEnd(want, have int) *Error {
	return Errorf(Overflow, "Invalid advance (%d) past end of buffer[%d] at offset: 0", want, have)
}

// Name is the server's name of the code. Only the codes that devmongo answers itself, or that a fail point is
// likely to ask for, have one.
func (c Code) Name() string {
	switch c {
	case internalError:
		return "InternalError"
	case BadValue:
		return "BadValue"
	case hostUnreachable:
		return "HostUnreachable"
	case hostNotFound:
		return "HostNotFound"
	case FailedToParse:
		return "FailedToParse"
	case Unauthorized:
		return "Unauthorized"
	case TypeMismatch:
		return "TypeMismatch"
	case Overflow:
		return "Overflow"
	case InvalidLength:
		return "InvalidLength"
	case authenticationFailed:
		return "AuthenticationFailed"
	case IllegalOperation:
		return "IllegalOperation"
	case invalidBSON:
		return "InvalidBSON"
	case NoSuchKey:
		return "NoSuchKey"
	case NoReplicationEnabled:
		return "NoReplicationEnabled"
	case StaleClusterTime:
		return "StaleClusterTime"
	case NamespaceNotFound:
		return "NamespaceNotFound"
	case IndexNotFound:
		return "IndexNotFound"
	case PathNotViable:
		return "PathNotViable"
	case ConflictingUpdateOperators:
		return "ConflictingUpdateOperators"
	case CursorNotFound:
		return "CursorNotFound"
	case NoMatchingDocument:
		return "NoMatchingDocument"
	case NamespaceExists:
		return "NamespaceExists"
	case MaxTimeMSExpired:
		return "MaxTimeMSExpired"
	case FailPointSetFailed:
		return "FailPointSetFailed"
	case CommandNotFound:
		return "CommandNotFound"
	case WriteConcernFailed:
		return "WriteConcernFailed"
	case ImmutableField:
		return "ImmutableField"
	case InvalidOptions:
		return "InvalidOptions"
	case InvalidNamespace:
		return "InvalidNamespace"
	case networkTimeout:
		return "NetworkTimeout"
	case shutdownInProgress:
		return "ShutdownInProgress"
	case WriteConflict:
		return "WriteConflict"
	case CommandNotSupported:
		return "CommandNotSupported"
	case CappedPositionLost:
		return "CappedPositionLost"
	case primarySteppedDown:
		return "PrimarySteppedDown"
	case InvalidUUID:
		return "InvalidUUID"
	case TransactionTooOld:
		return "TransactionTooOld"
	case CursorKilled:
		return "CursorKilled"
	case IncompleteTransactionHistory:
		return "IncompleteTransactionHistory"
	case CursorInUse:
		return "CursorInUse"
	case NoSuchTransaction:
		return "NoSuchTransaction"
	case TransactionCommitted:
		return "TransactionCommitted"
	case InvalidResumeToken:
		return "InvalidResumeToken"
	case exceededTimeLimit:
		return "ExceededTimeLimit"
	case ChangeStreamFatalError:
		return "ChangeStreamFatalError"
	case ChangeStreamHistoryLost:
		return "ChangeStreamHistoryLost"
	case socketException:
		return "SocketException"
	case NotPrimary:
		return "NotWritablePrimary"
	case BSONObjectTooLarge:
		return "BSONObjectTooLarge"
	case DuplicateKey:
		return "DuplicateKey"
	case interruptedAtShutdown:
		return "InterruptedAtShutdown"
	case interrupted:
		return "Interrupted"
	case interruptedStateChange:
		return "InterruptedDueToReplStateChange"
	case NotPrimaryNoSecondaryOk:
		return "NotPrimaryNoSecondaryOk"
	case notPrimaryOrSecondary:
		return "NotPrimaryOrSecondary"
	case 63:
		return "StaleShardVersion"
	case 133:
		return "FailedToSatisfyReadPreference"
	case 150:
		return "StaleEpoch"
	case 175:
		return "QueryPlanKilled"
	case 234:
		return "RetryChangeStream"
	case 464:
		return "ShardRemovedError"
	default:
		return "Location" + strconv.Itoa(int(c))
	}
}
