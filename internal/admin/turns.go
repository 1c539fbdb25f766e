package admin

import (
	"context"
	"sync"
)

// turns let one request in at a time. Of those that wait, each identity has one in the line: the
// next request of an identity waits for at most one of every other, however many they have.
type turns struct {
	mu    sync.Mutex
	line  chan struct{}
	lines map[string]*ownLine // of identities
}

// An ownLine is the requests of one identity.
type ownLine struct {
	first chan struct{} // holds a value while one of them is in the line of all
	used  int
}

func newTurns() *turns {
	return &turns{line: make(chan struct{}, 1), lines: make(map[string]*ownLine)}
}

// take waits for the turn of a request of an identity, until the context ends. The caller must call
// done where it is ok.
func (t *turns) take(ctx context.Context, identity string) (done func(), ok bool) {
	own := t.enter(identity)
	enter := func(line chan struct{}) bool {
		select {
		case line <- struct{}{}:
			return true
		case <-ctx.Done():
			return false
		}
	}
	if !enter(own.first) {
		t.leave(identity, own)
		return nil, false
	}
	if !enter(t.line) {
		<-own.first
		t.leave(identity, own)
		return nil, false
	}
	return func() {
		<-t.line
		<-own.first
		t.leave(identity, own)
	}, true
}

func (t *turns) enter(identity string) *ownLine {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.lines[identity]
	if own == nil {
		own = &ownLine{first: make(chan struct{}, 1)}
		t.lines[identity] = own
	}
	own.used++
	return own
}

func (t *turns) leave(identity string, own *ownLine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.used--; own.used == 0 {
		delete(t.lines, identity)
	}
}
