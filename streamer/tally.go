package streamer

import (
	"fmt"
	"sync"
	"time"
)

// Every is the least time between two tellings.
const Every = time.Second

// A tally counts errors of one kind. Its methods may be called from anywhere at once.
type tally struct {
	tell func(text string, last error)

	mu struct {
		sync.Mutex
		count int
		last  error
		told  time.Time
	}
}

// newTally makes a tally. tell is called from a goroutine of its own, with the newest error and a text that says it and how many there were.
func newTally(tell func(text string, last error)) *tally { return &tally{tell: tell} }

// Add counts an error. It never blocks.
func (t *tally) Add(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.last = err
	if t.mu.count++; t.mu.count == 1 {
		time.AfterFunc(max(0, time.Until(t.mu.told.Add(Every))), t.due)
	}
}

func (t *tally) due() {
	t.mu.Lock()
	count, last := t.mu.count, t.mu.last
	t.mu.count, t.mu.last, t.mu.told = 0, nil, time.Now()
	t.mu.Unlock()
	text := last.Error()
	if count > 1 {
		text = fmt.Sprintf("%d events, the last one: %s", count, text)
	}
	t.tell(text, last)
}
