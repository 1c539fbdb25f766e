package workload

import (
	"sync"
	"time"
)

// A key names a document: numbers of orders and of customers have nothing to do with each other.
type key struct {
	coll string
	id   int64
}

// A Ledger records the written changes. Its zero value is empty and ready.
type Ledger struct {
	mu        sync.Mutex
	documents map[key]*account
	written   int
}

// An account records the written changes of one document.
type account struct {
	sent   []time.Time // by the numbers of the changes, from 1
	acked  int64       // number of the last change that was acknowledged
	ending int64       // number of the deletion, 0 while there is none
}

// begin notes a change that is about to be sent: an event of it may arrive before it is
// acknowledged.
func (l *Ledger) begin(w written, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.documents == nil {
		l.documents = make(map[key]*account)
	}
	a := l.documents[w.key]
	if a == nil {
		a = &account{}
		l.documents[w.key] = a
	}
	a.sent = append(a.sent, now)
	l.written++
	if w.deleted {
		a.ending = w.seq
	}
}

// acknowledge notes that changes are in the log.
func (l *Ledger) acknowledge(notes []written) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range notes {
		l.documents[w.key].acked = w.seq
	}
}

// Written returns the number of changes that were sent: an event of one may arrive before MongoDB
// acknowledges it.
func (l *Ledger) Written() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written
}

// ending returns the number of a document's deletion.
func (l *Ledger) ending(k key) (seq int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.documents[k]
	if a == nil || a.ending == 0 {
		return 0, false
	}
	return a.ending, true
}

// sent returns when a change was sent, if it was.
func (l *Ledger) sent(k key, seq int64) (at time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.documents[k]
	if a == nil || seq < 1 || seq > int64(len(a.sent)) {
		return time.Time{}, false
	}
	return a.sent[seq-1], true
}

// each calls f with every document's number of acknowledged changes, and when its changes were
// sent.
func (l *Ledger) each(f func(k key, acked int64, sent []time.Time)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, a := range l.documents {
		f(k, a.acked, a.sent)
	}
}
