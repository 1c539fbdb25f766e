package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// workerArgument is the first argument of a process that is a worker; the second is the worker's
// name.
const workerArgument = "worker"

// A handler answers one request. Its answer is written as JSON.
type handler func(ctx context.Context, request json.RawMessage) (any, error)

// handle makes a Handler of a function of typed values.
func handle[Request, Answer any](f func(context.Context, Request) (Answer, error)) handler {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var request Request
		if err := json.Unmarshal(raw, &request); err != nil {
			return nil, fmt.Errorf("read request: %w", err)
		}
		return f(ctx, request)
	}
}

// none is an empty request or answer.
type none struct{}

type request struct {
	Method string          `json:"method"`
	Body   json.RawMessage `json:"body"`
}

type answer struct {
	Body  json.RawMessage `json:"body,omitempty"`
	Error string          `json:"error,omitempty"`
}

// serveRequests answers requests from in on out until in ends, which is not an error.
func serveRequests(ctx context.Context, in io.Reader, out io.Writer, handlers map[string]handler) error {
	requests := json.NewDecoder(bufio.NewReader(in))
	answers := json.NewEncoder(out)
	for {
		var r request
		if err := requests.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read request: %w", err)
		}
		if err := answers.Encode(respond(ctx, handlers[r.Method], r)); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
}

func respond(ctx context.Context, handler handler, r request) answer {
	if handler == nil {
		return answer{Error: fmt.Sprintf("no method %q", r.Method)}
	}
	value, err := handler(ctx, r.Body)
	if err != nil {
		return answer{Error: err.Error()}
	}
	body, err := json.Marshal(value)
	if err != nil {
		return answer{Error: fmt.Sprintf("write answer: %v", err)}
	}
	return answer{Body: body}
}

// A worker is a child process of the benchmark.
type worker struct {
	name     string
	cmd      *exec.Cmd
	in       io.WriteCloser
	requests *json.Encoder
	answers  *json.Decoder
}

// startWorker executes this program again as the named worker. The worker's standard error goes to
// notes.
func startWorker(name string, notes io.Writer) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, workerArgument, name) //nolint:noctx // ends with its input, after it has cleaned up
	cmd.Stderr = notes
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start worker %s: %w", name, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start worker %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start worker %s: %w", name, err)
	}
	return &worker{name: name, cmd: cmd, in: in, requests: json.NewEncoder(in), answers: json.NewDecoder(bufio.NewReader(out))}, nil
}

// call sends a request and waits for its answer. When the context ends first, the process is
// killed.
func (p *worker) call(ctx context.Context, method string, body, result any) error {
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	defer stop()
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%s: write request %s: %w", p.name, method, err)
	}
	var a answer
	if err := errors.Join(p.requests.Encode(request{Method: method, Body: raw}), p.answers.Decode(&a)); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %s: %w", p.name, method, context.Cause(ctx))
		}
		return fmt.Errorf("%s: %s: the worker has ended: %w", p.name, method, err)
	}
	if a.Error != "" {
		return fmt.Errorf("%s: %s: %s", p.name, method, a.Error)
	}
	if err := json.Unmarshal(a.Body, result); err != nil {
		return fmt.Errorf("%s: read answer to %s: %w", p.name, method, err)
	}
	return nil
}

// closeTimeout is how long a worker may take to clean up.
const closeTimeout = 5 * time.Minute

// close ends the worker's input and waits for its end.
func (p *worker) close() error {
	_ = p.in.Close()
	kill := time.AfterFunc(closeTimeout, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("end worker %s: %w", p.name, err)
	}
	return nil
}

// tick is the resolution of CPU times in /proc: USER_HZ is 100 on every architecture that Go runs
// on. (man 5 proc.)
const tick = 10 * time.Millisecond

// cpu returns the time that the process has spent in user and kernel mode, in steps of 10 ms.
func (p *worker) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read CPU time of worker %s: %w", p.name, err)
	}
	d, err := cpuOf(string(stat))
	if err != nil {
		return 0, fmt.Errorf("read CPU time of worker %s: %w", p.name, err)
	}
	return d, nil
}

// cpuOf reads utime and stime, fields 14 and 15. The second field is the program's name in
// parentheses, which may hold anything.
func cpuOf(stat string) (time.Duration, error) {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) < 13 {
		return 0, errors.New("unknown form of /proc/PID/stat")
	}
	var sum time.Duration
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("unknown form of /proc/PID/stat: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}
