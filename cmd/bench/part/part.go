package part

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Argument is the first argument of a process that is a part; the second is the part's name.
const Argument = "part"

// A Handler answers one request. Its answer is written as JSON.
type Handler func(ctx context.Context, request json.RawMessage) (any, error)

// Handle makes a Handler of a function of typed values.
func Handle[Request, Answer any](f func(context.Context, Request) (Answer, error)) Handler {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var request Request
		if err := json.Unmarshal(raw, &request); err != nil {
			return nil, fmt.Errorf("read request: %w", err)
		}
		return f(ctx, request)
	}
}

// None is a request or an answer that says nothing.
type None struct{}

type request struct {
	Method string          `json:"method"`
	Body   json.RawMessage `json:"body"`
}

type answer struct {
	Body  json.RawMessage `json:"body,omitempty"`
	Error string          `json:"error,omitempty"`
}

// Serve answers requests from in on out until in ends, which is no error.
func Serve(ctx context.Context, in io.Reader, out io.Writer, handlers map[string]Handler) error {
	requests, answers := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
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

func respond(ctx context.Context, handler Handler, r request) answer {
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
