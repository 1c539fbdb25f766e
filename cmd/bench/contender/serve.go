package contender

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/mongostream/streamer/cmd/bench/part"
	"github.com/mongostream/streamer/fault"
)

// All are the contenders by their names.
func All() map[string]func() Contender {
	return map[string]func() Contender{
		"raw":       func() Contender { return &raw{} },
		"bare":      func() Contender { return &stream{} },
		"naive":     func() Contender { return &stream{decode: true} },
		"streams":   func() Contender { return &streams{} },
		"node":      func() Contender { return &node{} },
		"gateway":   func() Contender { return &gateway{} },
		"window":    func() Contender { return &memory{remember: window} },
		"expirable": func() Contender { return &memory{remember: expiring} },
	}
}

// Serve runs contenders as a part, one job after the other: "open" takes a [Job], lets its contender read, and answers when what is
// written from then on will be read; "read" answers with the [Result] once everything has come.
func Serve(ctx context.Context, in io.Reader, out io.Writer, contenders map[string]func() Contender) error {
	var current *running
	err := part.Serve(ctx, in, out, map[string]part.Handler{
		"open": part.Handle(func(ctx context.Context, j Job) (none part.None, err error) {
			contend, known := contenders[j.Contender]
			if !known || current != nil {
				return none, fmt.Errorf("contender %q is unknown, or another one is open", j.Contender)
			}
			current, err = open(ctx, contend(), j)
			return none, err
		}),
		"read": part.Handle(func(context.Context, part.None) (Result, error) {
			if current == nil {
				return Result{}, errors.New("nothing is open")
			}
			result, err := <-current.result, current.close()
			current = nil
			return result, err
		}),
	})
	if current != nil {
		err = errors.Join(err, current.close())
	}
	return err
}

// running is a contender that reads.
type running struct {
	contender Contender
	cancel    context.CancelFunc
	result    chan Result
}

func open(ctx context.Context, c Contender, j Job) (*running, error) {
	round := newRound(j, c.Readers(j))
	ctx, cancel := context.WithTimeout(ctx, j.Timeout)
	r := &running{contender: c, cancel: cancel, result: make(chan Result, 1)}
	if err := c.Open(ctx, round); err != nil {
		return nil, errors.Join(err, r.close())
	}
	go func() { r.result <- read(ctx, c, round) }()
	return r, nil
}

func (r *running) close() error {
	r.cancel()
	return r.contender.Close()
}

// read reads one job's events; where the time runs out, the checks tell what is missing.
func read(ctx context.Context, c Contender, round *Round) Result {
	err := c.Read(ctx)
	result := round.end()
	if err != nil && ctx.Err() == nil {
		result.Fault = message(err)
	}
	return result
}

func message(err error) string {
	if code := fault.Of(err); code != "" {
		return fmt.Sprintf("%s: %v", code, err)
	}
	return err.Error()
}
