package delivery

import (
	"fmt"
	"sync"
	"time"
)

// minInterval is the least time between two reports.
const minInterval = time.Second

// An errorLimit rate-limits repeated errors. Its methods are safe for concurrent use.
type errorLimit struct {
	report func(text string, last error)

	mu struct {
		sync.Mutex
		count    int
		last     error
		reported time.Time
	}
}

// newErrorLimit returns an errorLimit. report is called in its own goroutine with the newest error
// and a text that includes the number of errors since the last report.
func newErrorLimit(report func(text string, last error)) *errorLimit {
	return &errorLimit{report: report}
}

// Add records an error. It never blocks.
func (t *errorLimit) Add(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.last = err
	if t.mu.count++; t.mu.count == 1 {
		time.AfterFunc(max(0, time.Until(t.mu.reported.Add(minInterval))), t.due)
	}
}

func (t *errorLimit) due() {
	t.mu.Lock()
	count, last := t.mu.count, t.mu.last
	t.mu.count = 0
	t.mu.last = nil
	t.mu.reported = time.Now()
	t.mu.Unlock()
	text := last.Error()
	if count > 1 {
		text = fmt.Sprintf("%d events, the last: %s", count, text)
	}
	t.report(text, last)
}
