package operator

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mongostream/streamer/fault"
)

func TestExitCodesTellWhatScriptsAsk(t *testing.T) {
	cause := errors.New("x")
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{cause, 1},
		{fault.New(fault.CommandUnconfirmed, cause), 1},
		{badResult{fault.New(fault.MongoUnreachable, cause)}, 1},
		{fmt.Errorf("outer: %w", badResult{fault.New(fault.ConfigBadValue, cause)}), 1},
		{fault.New(fault.CommandBadArgument, cause), 2},
		{errors.Join(fault.New(fault.ConfigUnknownKey, cause), fault.New(fault.ConfigBadValue, cause)), 2},
		{fault.New(fault.NodeUnreachable, cause), 3},
		{fmt.Errorf("outer: %w", fault.New(fault.EtcdUnreachable, cause)), 3},
	} {
		if got := ExitCode(tt.err); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.err, got, tt.want)
		}
	}
}
