package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/internal/retry"
)

// startEndpoint starts an HTTP endpoint that appends what is posted to /bare to a file beside the
// named one, and everything else to that.
func startEndpoint(ctx context.Context, name string) (url string, stop func(), err error) {
	stop = func() {}
	received, err := os.Create(name)
	if err != nil {
		return "", stop, fmt.Errorf("open the endpoint's file: %w", err)
	}
	bare, err := os.Create(bareFile(name))
	if err != nil {
		return "", stop, errors.Join(fmt.Errorf("open the endpoint's file: %w", err), received.Close())
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", stop, errors.Join(fmt.Errorf("open the endpoint: %w", err), received.Close(), bare.Close())
	}
	var mu sync.Mutex
	appendTo := func(file *os.File) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				mu.Lock()
				_, err = file.Write(body)
				mu.Unlock()
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/", appendTo(received))
	mux.Handle("/bare", appendTo(bare))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	return "http://" + l.Addr().String(), func() { _, _, _ = server.Close(), received.Close(), bare.Close() }, nil
}

// bareFile returns the file of a bare producer.
func bareFile(name string) string { return name + ".bare" }

// consumeLines calls take for each line of a file until take returns false.
func consumeLines(name string, take func(arrived) bool) error {
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil // without a partial line
		case err != nil:
			return fmt.Errorf("consume: %w", err)
		}
		if !take(arrived{value: bytes.TrimSuffix(line, []byte("\n"))}) {
			return nil
		}
	}
}

// httpBatch and httpParallel are the changes of a request and the requests at a time of a sink,
// fileBatch is the lines that it syncs together.
const httpBatch, httpParallel, fileBatch = 100, 16, 4096

// publishToHTTP posts messages in batches, as many at a time as a sink: those of a document one
// after the other.
func publishToHTTP(ctx context.Context, round *round, messages []arrived, rate int) error {
	transport := &http.Transport{MaxIdleConnsPerHost: httpParallel}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	return publishLines(ctx, round, messages, rate, httpParallel, httpBatch, func(ctx context.Context, text []byte) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, round.Broker.URL+"/bare", bytes.NewReader(text))
		if err != nil {
			return fmt.Errorf("make a request: %w", err)
		}
		req.Header.Set("Content-Type", "application/x-ndjson")
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("post: %w", err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the endpoint answered %s", resp.Status)
		}
		return nil
	})
}

// publishToFile appends messages to a file, and syncs each batch.
func publishToFile(ctx context.Context, round *round, messages []arrived, rate int) error {
	file, err := os.Create(bareFile(round.Broker.File))
	if err != nil {
		return fmt.Errorf("open the file: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is synced
	return publishLines(ctx, round, messages, rate, 1, fileBatch, func(_ context.Context, text []byte) error {
		_, err := file.Write(text)
		if err = errors.Join(err, file.Sync()); err != nil {
			return fmt.Errorf("append: %w", err)
		}
		return nil
	})
}

// publishLines passes messages to send as lines, in batches of those that are due at the rate: all
// if it is 0. It does so in several lanes beside each other; each document has one.
func publishLines(ctx context.Context, round *round, messages []arrived, rate, lanes, batch int, send func(context.Context, []byte) error) error {
	of := make([][]arrived, lanes)
	for _, m := range messages {
		id, _ := textNumber(m.value, `"_id":`)
		lane := int(id) % lanes
		of[lane] = append(of[lane], m)
	}
	round.begin()
	begun := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, lane := range of {
		g.Go(func() error {
			pace := pacer{begun: begun, rate: rate / lanes}
			var text []byte
			for len(lane) > 0 {
				n, err := pace.due(ctx, min(batch, len(lane)))
				if err != nil {
					return fmt.Errorf("keep the pace: %w", err)
				}
				text = text[:0]
				for _, m := range lane[:n] {
					text = append(append(text, m.value...), '\n')
				}
				if err := send(ctx, text); err != nil {
					return err
				}
				lane = lane[n:]
			}
			return nil
		})
	}
	return g.Wait() //nolint:wrapcheck // of send
}

// due waits until a turn is due, to the precision of the look interval, and takes as many turns as
// are due, up to a number of them.
func (p *pacer) due(ctx context.Context, most int) (turns int, err error) {
	for turns = most; p.rate > 0; {
		if turns = min(most, int(time.Since(p.begun).Seconds()*float64(p.rate))-p.turns); turns > 0 {
			break
		}
		if err := retry.Sleep(ctx, look); err != nil {
			return 0, err
		}
	}
	p.turns += turns
	return turns, nil
}
