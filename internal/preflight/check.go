package preflight

import (
	"context"
	"errors"
	"fmt"
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
	// Lane is the system that the check asks: checks of different lanes run at the same time.
	Lane string
	// Needs names checks before it without which it cannot be tried.
	Needs []string
	// run may block until the context ends. Its error is a failure, or a warning if the check is
	// Optional: of its own code where it is a fault, otherwise of Code.
	run  func(ctx context.Context) (finding, error)
	Code fault.Code
	// Optional: a node starts and delivers although the check fails.
	Optional bool
}

// A Result is how one check came out.
type Result struct {
	Name  string `json:"name"`
	Level Level  `json:"result"`
	Text  string `json:"text"`
	// Where is where the key is set that causes it: file:line, or a variable.
	Where  string     `json:"where,omitempty"`
	Code   fault.Code `json:"code,omitempty"`
	Remedy string     `json:"remedy,omitempty"`
}

// A Report is how all of them came out; OK says that none has failed.
type Report struct {
	OK     bool     `json:"ok"`
	Checks []Result `json:"checks"`
}

// A Source is the origin of a configuration, as far as it is known.
type Source struct {
	// Secrets are config.SecretFiles.
	Secrets map[string]string
	// Where is where each key is set, by config.Settings, Unused the keys without an effect.
	Where  map[string]string
	Unused []config.Setting
}

// Run checks the services of the configuration as a node would find them: MongoDB, etcd and the
// sinks at the same time. told is called with each result in the order of the report, as soon as it
// and those before it are known. The outage is the longest that must be survived without a loss. It
// writes nothing, except small objects in the bucket of a retained log, which it deletes, and stops
// when the context ends.
func Run(ctx context.Context, conn *backend.Conn, source Source, outage time.Duration, told func(Result)) Report {
	return runChecks(ctx, checks(conn, source, outage), told)
}

// RunHere runs the checks that need no connection: how well a node is protected against strangers.
// It skips missing files.
func RunHere(ctx context.Context, cfg config.Config, source Source) Report {
	return runChecks(ctx, closure{cfg: cfg, secrets: source.Secrets, where: source.Where, unused: source.Unused}.here(), func(Result) {})
}

// runChecks runs the checks of each lane one after the other, and the lanes at the same time. A
// check waits for the checks of other lanes that it needs.
func runChecks(ctx context.Context, checks []check, told func(Result)) Report {
	results := make([]Result, len(checks))
	done := make([]chan struct{}, len(checks))
	place := map[string]int{}
	lanes := map[string][]int{}
	for i, c := range checks {
		done[i] = make(chan struct{})
		place[c.Name] = i
		lanes[c.Lane] = append(lanes[c.Lane], i)
	}
	for _, lane := range lanes {
		go func() {
			for _, i := range lane {
				results[i] = checks[i].after(ctx, func(name string) Level {
					before, known := place[name]
					if !known {
						return ""
					}
					<-done[before]
					return results[before].Level
				})
				close(done[i])
			}
		}()
	}
	report := Report{OK: true, Checks: []Result{}}
	for i := range checks {
		<-done[i]
		if results[i].Level == "" {
			continue // the context has ended
		}
		report.OK = report.OK && results[i].Level != Fail
		report.Checks = append(report.Checks, results[i])
		told(results[i])
	}
	return report
}

// after runs the check unless one that it needs has failed or was not tried.
func (c check) after(ctx context.Context, level func(name string) Level) Result {
	for _, name := range c.Needs {
		if level := level(name); level == Fail || level == Skip {
			return Result{Name: c.Name, Level: Skip, Text: "skipped: it needs " + name}
		}
	}
	if ctx.Err() != nil {
		return Result{}
	}
	return c.execute(ctx)
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
		f = failure(c.Code, "%s", err)
		if c.Optional {
			f.Level = Warn
		}
		if own, ok := errors.AsType[*fault.Error](err); ok {
			f.Text = own.Err.Error()
			f.Code = own.Code
		}
	}
	r := Result{Name: c.Name, Level: f.Level, Text: f.Text, Code: f.Code}
	if complaint, ok := errors.AsType[*config.Complaint](err); ok {
		r.Where = complaint.Where
	}
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
