package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end. One that leaks never does.
const patience = time.Minute

// Main is a TestMain. It ignores goroutines with functions of these names, which libraries leave
// behind.
func Main(m *testing.M, ignored ...string) {
	os.Exit(Run(m, ignored...)) //nolint:forbidigo // it is a TestMain
}

// Run runs the tests and returns the exit code, for a TestMain that has more to do.
func Run(m *testing.M, ignored ...string) (code int) {
	if code = m.Run(); code != 0 {
		return code
	}
	if err := left(patience, ignored...); err != nil {
		fmt.Fprintln(os.Stderr, "after the tests:", err)
		return 1
	}
	return 0
}

// left returns an error that names the goroutines that have not ended in time.
func left(patience time.Duration, ignored ...string) (err error) {
	var options []goleak.Option
	for _, function := range ignored {
		options = append(options, goleak.IgnoreAnyFunction(function))
	}
	for begun := time.Now(); ; {
		if err = goleak.Find(options...); err == nil || time.Since(begun) > patience {
			return err
		}
	}
}
