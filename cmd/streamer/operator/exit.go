package operator

import (
	"errors"

	"github.com/mongostream/streamer/fault"
)

// The exit codes of all commands.
const (
	exitRefused     = 1
	exitUsage       = 2
	exitUnreachable = 3
)

// ExitCodes is their table for people.
const ExitCodes = `Exit codes:
  0  done
  1  refused, failed, or the result is bad: a check that fails, a node that is not healthy
  2  wrong usage: an argument, a flag, a name, or the configuration
  3  a node, etcd or MongoDB cannot be reached`

// A badResult says that the command has succeeded and that its result is bad, whatever the code of
// the finding.
type badResult struct{ error }

// Unwrap returns the finding.
func (b badResult) Unwrap() []error { return []error{b.error} }

// Spread returns the errors that are joined in err, or err alone.
func Spread(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, Spread(e)...)
	}
	return all
}

// ExitCode returns the exit code of a command that ended with an error, nil for none. Of joined
// errors the first decides.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if _, bad := errors.AsType[badResult](err); bad {
		return exitRefused
	}
	switch fault.Of(err) {
	case fault.CommandBadArgument, fault.ConfigBadValue, fault.ConfigConflict, fault.ConfigUnknownKey, fault.ConfigUnreadable, fault.ParameterLocked,
		fault.SessionBadRequest, fault.FilterInvalid:
		return exitUsage
	case fault.NodeUnreachable, fault.MongoUnreachable, fault.EtcdUnreachable:
		return exitUnreachable
	default:
		return exitRefused
	}
}
