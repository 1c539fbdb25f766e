package workload

import "sync"

// A Ledger is what was written. Its zero value is empty and ready.
type Ledger struct {
	mu        sync.Mutex
	documents map[int64]*account
	written   int
}

// An account is what was written of one document.
type account struct {
	acked  int64 // number of the last change that was acknowledged
	ending int64 // number of the deletion, 0 while there is none
}

// begin notes a change that is about to be sent: an event of it may arrive before it is
// acknowledged.
func (l *Ledger) begin(w written) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.documents == nil {
		l.documents = make(map[int64]*account)
	}
	a := l.documents[w.id]
	if a == nil {
		a = &account{}
		l.documents[w.id] = a
	}
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
		l.documents[w.id].acked = w.seq
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
func (l *Ledger) ending(id int64) (seq int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.documents[id]
	if a == nil || a.ending == 0 {
		return 0, false
	}
	return a.ending, true
}

// each calls f with every document's number of acknowledged changes.
func (l *Ledger) each(f func(id, acked int64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, a := range l.documents {
		f(id, a.acked)
	}
}
