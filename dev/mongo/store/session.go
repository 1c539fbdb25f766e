package store

import (
	"crypto/sha256"
	"sync"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Sessions is the sessions of a server. It is safe for concurrent use.
type Sessions struct {
	store *Store
	mu    sync.Mutex
	open  map[string]*Session
}

// NewSessions makes an empty registry.
func NewSessions(s *Store) *Sessions { return &Sessions{store: s, open: map[string]*Session{}} }

// Get returns the session of an lsid, which it opens when it is new.
func (r *Sessions) Get(lsid bsoncore.Value) (*Session, error) {
	id, _ := doc.Field(lsid.Data, "id")
	subtype, data, ok := id.BinaryOK()
	if !ok || subtype != 4 || len(data) != 16 {
		return nil, wire.Errorf(wire.InvalidUUID, "lsid.id must be a UUID")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.open[string(data)]
	if s == nil {
		nobody := sha256.Sum256(nil) // the digest of the user, and there are no users
		s = &Session{
			store: r.store, number: -1,
			lsid: doc.New().Binary("id", 4, data).Binary("uid", 0, nobody[:]).Document(),
		}
		r.open[string(data)] = s
	}
	return s, nil
}

// End forgets sessions and aborts their transactions.
func (r *Sessions) End(lsids []bsoncore.Value) {
	for _, lsid := range lsids {
		id, _ := doc.Field(lsid.Data, "id")
		_, data, ok := id.BinaryOK()
		if !ok {
			continue
		}
		r.mu.Lock()
		s := r.open[string(data)]
		delete(r.open, string(data))
		r.mu.Unlock()
		if s != nil {
			s.mu.Lock()
			s.abort()
			s.mu.Unlock()
		}
	}
}

// Count is the number of sessions.
func (r *Sessions) Count() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(len(r.open))
}

// Session is one logical session. Lock it while a statement with a transaction number runs.
type Session struct {
	store *Store
	lsid  bsoncore.Document

	mu      sync.Mutex
	number  int64
	results map[int32]WriteResult // of the retryable write with that number, by statement
	state   sessionState
	txn     *Txn
}

type sessionState uint8

const (
	noTxn sessionState = iota
	inProgress
	committed
	aborted
)

// WriteResult is the Outcome of one statement of a retryable write.
type WriteResult struct {
	Matched, Modified int64
	Upserted          *bsoncore.Value
	Reply             bsoncore.Document // the elements of a findAndModify's reply
}

// Lock makes the session the caller's until Unlock.
func (s *Session) Lock() { s.mu.Lock() }

// Unlock ends that.
func (s *Session) Unlock() { s.mu.Unlock() }

// Retryable begins or repeats a retryable write.
func (s *Session) Retryable(number int64) (*oplog.Session, error) {
	switch {
	case number < s.number:
		return nil, wire.Errorf(wire.TransactionTooOld, "Retryable write with txnNumber %d is prohibited on session %s because a newer retryable write with txnNumber %d has already started on this session.",
			number, doc.Text(s.lsid), s.number)
	case number > s.number:
		s.advance(number)
		s.results = map[int32]WriteResult{}
	case s.state != noTxn:
		return nil, wire.Errorf(wire.IncompleteTransactionHistory, "Cannot retry a retryable write that has been converted into a transaction")
	}
	return &oplog.Session{LSID: s.lsid, TxnNumber: number}, nil
}

func (s *Session) advance(number int64) {
	s.abort()
	s.number = number
	s.state = noTxn
	s.txn = nil
	s.results = nil
}

func (s *Session) abort() {
	if s.state == inProgress {
		s.store.Abort(s.txn)
		s.state = aborted
	}
}

// Done returns the Outcome of a statement that was executed before.
func (s *Session) Done(stmt int32) (WriteResult, bool) {
	r, ok := s.results[stmt]
	return r, ok
}

// Record remembers the Outcome of a statement.
func (s *Session) Record(stmt int32, r WriteResult) {
	if s.results != nil {
		s.results[stmt] = r
	}
}

// Start begins a transaction.
func (s *Session) Start(number int64) (*Txn, error) {
	switch {
	case number < s.number:
		return nil, s.tooOld(number)
	case number == s.number:
		return nil, wire.Errorf(50911, "Cannot start a transaction at given transaction number %d, a transaction with the same number is in state %s", number, s.state)
	}
	s.advance(number)
	s.state = inProgress
	s.txn = s.store.begin(&oplog.Session{LSID: s.lsid, TxnNumber: number})
	return s.txn, nil
}

func (s *Session) tooOld(number int64) error {
	return wire.Errorf(wire.TransactionTooOld, "Cannot start transaction %d on session %s because a newer transaction %d has already started.", number, doc.Text(s.lsid), s.number)
}

func (s sessionState) String() string {
	return [...]string{"TxnState::kNone", "TxnState::kInProgress", "TxnState::kCommitted", "TxnState::kAbortedWithoutPrepare"}[s]
}

// Continue returns the transaction in progress.
func (s *Session) Continue(number int64) (*Txn, error) {
	switch {
	case number < s.number:
		return nil, s.tooOld(number)
	case number > s.number || s.state == noTxn:
		return nil, wire.Errorf(wire.NoSuchTransaction, "Given transaction number %d does not match any in-progress transactions. The active transaction number is %d", number, s.number)
	case s.state == committed:
		return nil, wire.Errorf(wire.TransactionCommitted, "Transaction %d has been committed.", number)
	case s.state == aborted:
		return nil, wire.Errorf(wire.NoSuchTransaction, "Transaction %d has been aborted.", number)
	}
	return s.txn, nil
}

// Commit ends a transaction with its changes. A second commit is not an error.
func (s *Session) Commit(number int64) error {
	t, err := s.Continue(number)
	if wire.HasCode(err, wire.TransactionCommitted) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := s.store.commit(t); err != nil {
		s.state = aborted
		return err
	}
	s.state = committed
	s.txn = nil
	return nil
}

// Abort ends a transaction without its changes.
func (s *Session) Abort(number int64) error {
	if _, err := s.Continue(number); err != nil {
		return err
	}
	s.abort()
	return nil
}

// Fail aborts the transaction after one of its statements failed.
func (s *Session) Fail() { s.abort() }
