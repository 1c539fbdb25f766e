package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
)

// A Level says how a check came out.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
	Skip Level = "skip"
)

// A finding is the result of a check.
type finding struct {
	Level Level
	Text  string
	Code  fault.Code // empty for ok and skip
}

// A check finds out about one thing.
type check struct {
	Name string
	// Needs names checks before it without which it cannot be tried.
	Needs []string
	// run may block until the context ends. Its error is a failure: of its own code where it is a
	// fault, otherwise of Code.
	run  func(ctx context.Context) (finding, error)
	Code fault.Code
}

// A Result is how one check came out.
type Result struct {
	Name   string     `json:"name"`
	Level  Level      `json:"result"`
	Text   string     `json:"text"`
	Code   fault.Code `json:"code,omitempty"`
	Remedy string     `json:"remedy,omitempty"`
}

// A Report is how all of them came out; OK says that none has failed.
type Report struct {
	OK     bool     `json:"ok"`
	Checks []Result `json:"checks"`
}

// Run checks the services of the configuration as a node would find them, one check after the
// other. The secrets are config.SecretFiles. The outage is the longest that must be survived
// without a loss. It writes nothing, and stops when the context ends.
func Run(ctx context.Context, conn *backend.Conn, secrets map[string]string, outage time.Duration) Report {
	return runChecks(ctx, checks(conn, secrets, outage))
}

// RunHere runs the checks that need no connection: how well a node is protected against strangers.
// It skips missing files.
func RunHere(ctx context.Context, cfg config.Config, secrets map[string]string) Report {
	return runChecks(ctx, closure{cfg: cfg, secrets: secrets}.here())
}

func runChecks(ctx context.Context, checks []check) Report {
	report := Report{OK: true, Checks: []Result{}}
	var out []string // checks that have failed or did not run
	for _, c := range checks {
		if ctx.Err() != nil {
			break
		}
		r := Result{Name: c.Name}
		if i := slices.IndexFunc(c.Needs, func(name string) bool { return slices.Contains(out, name) }); i >= 0 {
			r.Level, r.Text = Skip, "skipped: it needs "+c.Needs[i]
		} else {
			r = c.execute(ctx)
		}
		if r.Level == Fail || r.Level == Skip {
			out = append(out, c.Name)
			report.OK = report.OK && r.Level != Fail
		}
		report.Checks = append(report.Checks, r)
	}
	return report
}

// checkTimeout bounds one check.
const checkTimeout = time.Minute

func (c check) execute(ctx context.Context) Result {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return c.result(c.run(ctx))
}

func (c check) result(f finding, err error) Result {
	if err != nil {
		f = finding{Level: Fail, Text: err.Error(), Code: c.Code}
		if own, ok := errors.AsType[*fault.Error](err); ok {
			f.Text, f.Code = own.Err.Error(), own.Code
		}
	}
	r := Result{Name: c.Name, Level: f.Level, Text: f.Text, Code: f.Code}
	if entry, ok := fault.Lookup(f.Code); ok {
		r.Remedy = entry.Remedy
	}
	return r
}

func fine(format string, args ...any) finding {
	return finding{Level: OK, Text: fmt.Sprintf(format, args...)}
}

func warning(code fault.Code, format string, args ...any) finding {
	return finding{Level: Warn, Text: fmt.Sprintf(format, args...), Code: code}
}

func failure(code fault.Code, format string, args ...any) finding {
	return finding{Level: Fail, Text: fmt.Sprintf(format, args...), Code: code}
}
