package main

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	// maxLogQueue bounds the log lines that wait to be written, in bytes: a node logs less in an
	// hour of trouble. Further lines are dropped and counted.
	maxLogQueue = 1 << 20
	// lastLines is how long a process that ends waits for its last lines to be written.
	lastLines = time.Second
)

// A logQueue writes log lines in the background, because standard error may be a pipe that nobody
// reads: the caller never waits for the reader. It is an io.Writer for whole lines.
type logQueue struct {
	to      io.Writer
	dropped func(lines uint64) []byte // the line that reports dropped lines
	more    chan struct{}             // holds one signal: there are lines, or the end
	done    chan struct{}             // closed when everything is written after the end

	mu struct {
		sync.Mutex
		lines [][]byte
		bytes int
		since time.Time // since when the line that is being written waits; zero while none does
		lost  uint64    // not reported yet
		total uint64    // ever dropped
		ended bool
	}
}

// newLogQueue returns a queue that writes until it is closed. dropped returns the line that reports
// how many lines are missing in its place.
func newLogQueue(to io.Writer, dropped func(lines uint64) []byte) *logQueue {
	q := &logQueue{to: to, dropped: dropped, more: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Write queues a line, or drops it if the queue is full. It never blocks and never fails.
func (q *logQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.bytes+len(line) > maxLogQueue {
		q.mu.lost++
		q.mu.total++
		return len(line), nil
	}
	q.mu.lines = append(q.mu.lines, bytes.Clone(line))
	q.mu.bytes += len(line)
	q.wake()
	return len(line), nil
}

func (q *logQueue) wake() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// State returns how many lines have been dropped, and for how long a line has waited to be written,
// 0 while none waits.
func (q *logQueue) State() (dropped uint64, stuck time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.since.IsZero() {
		stuck = time.Since(q.mu.since)
	}
	return q.mu.total, stuck
}

// Close writes the queued lines, and waits for that at most for the timeout.
func (q *logQueue) Close(within time.Duration) {
	q.mu.Lock()
	q.mu.ended = true
	q.wake()
	q.mu.Unlock()
	bounded(within, func() { <-q.done })
}

// bounded waits for f with a timeout, because f writes, right before the process ends, to a pipe
// that may have no reader.
func bounded(within time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	over := time.NewTimer(within)
	defer over.Stop()
	select {
	case <-done:
	case <-over.C:
	}
}

func (q *logQueue) run() {
	defer close(q.done)
	for {
		line, ended := q.next()
		switch {
		case line != nil:
			_, _ = q.to.Write(line) // there is no way to report it
		case ended:
			return
		default:
			<-q.more
		}
	}
}

// next returns the line to write next, nil if there is none. After the lines comes the one that
// reports how many were dropped after them.
func (q *logQueue) next() (line []byte, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.since = time.Time{}
	switch {
	case len(q.mu.lines) > 0:
		line, q.mu.lines = q.mu.lines[0], q.mu.lines[1:]
		q.mu.bytes -= len(line)
	case q.mu.lost > 0:
		line = q.dropped(q.mu.lost)
		q.mu.lost = 0
	default:
		return nil, q.mu.ended
	}
	q.mu.since = time.Now()
	return line, false
}
