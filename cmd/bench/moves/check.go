package moves

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/gateway/client"
)

// A check takes what one gateway gets. Its handlers run side by side.
type check struct {
	mu      sync.Mutex
	last    []int64            // by document, the number of its last change
	of      []change.Partition // by document
	longest []time.Duration    // by document, while it is watched; nil otherwise
	fault   error              // the first thing that was wrong
	more    chan struct{}      // holds one signal: something has come
}

func newCheck(documents int) *check {
	return &check{last: make([]int64, documents+1), of: make([]change.Partition, documents+1), more: make(chan struct{}, 1)}
}

// take takes a change.
func (c *check) take(event client.Change) error {
	now := time.Now()
	id, seq, at, err := read(event.Data)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id < 1 || id >= int64(len(c.last)) {
		return fmt.Errorf("document %d, which nobody wrote", id)
	}
	if seq != c.last[id]+1 && c.fault == nil {
		c.fault = fmt.Errorf("change %d of document %d came after change %d", seq, id, c.last[id])
	}
	c.last[id], c.of[id] = seq, change.Partition(event.Partition)
	if c.longest != nil {
		c.longest[id] = max(c.longest[id], now.Sub(time.Unix(0, at)))
	}
	select {
	case c.more <- struct{}{}:
	default:
	}
	return nil
}

// read finds the numbers of a change.
func read(event bson.Raw) (id, seq, at int64, err error) {
	fields, found := event.Lookup("fullDocument").DocumentOK()
	if !found {
		fields, found = event.Lookup("updateDescription", "updatedFields").DocumentOK()
	}
	id, idOK := event.Lookup("documentKey", "_id").Int64OK()
	if !found || !idOK {
		return 0, 0, 0, errors.New("an event that is not of the benchmark's form")
	}
	seq, seqOK := fields.Lookup("seq").Int64OK()
	at, atOK := fields.Lookup("at").Int64OK()
	if !seqOK || !atOK {
		return 0, 0, 0, errors.New("a change without its number")
	}
	return id, seq, at, nil
}

// watch keeps each document's longest delay from now on.
func (c *check) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest = make([]time.Duration, len(c.last))
}

// watched returns the longest delays of the documents in the partitions since watch.
func (c *check) watched(partitions map[change.Partition]bool) (delays []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, d := range c.longest {
		if id > 0 && partitions[c.of[id]] {
			delays = append(delays, d)
		}
	}
	return delays
}

// has reports whether everything has come that was written, by document; an error says that something else has.
func (c *check) has(written []int64) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Equal(c.last, written), c.fault
}
