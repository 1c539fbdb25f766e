package sink

import (
	"context"
	"errors"

	"github.com/mongostream/streamer/change"
)

// A Message is a change, or a loss, for a target. Its contents must not be modified.
type Message struct {
	// Partition and Epoch identify the term under which it is published.
	Partition change.Partition
	Epoch     change.Epoch
	// Incarnation is the incarnation of the partition's checkpoint, Number the number of the
	// message in the term, from 1.
	Incarnation string
	Number      uint64
	// Ref is its position. ID is the position as text, with the cluster and the incarnation: unique
	// among the changes of the sink, and the same for an accidental repetition of a change.
	Ref change.Ref
	ID  string
	// Op is MongoDB's operationType, or OpLoss. DB and Coll are empty if the change has none.
	Op, DB, Coll string
	// Key is the document's key (extjson.AppendKey), the same for all _ids that MongoDB considers
	// equal; nil without a document.
	Key []byte
	// Value is the change in the sink's format.
	Value []byte
	// Time is its commit time.
	Time change.Timestamp
	// Snapshot says that it is a document of a snapshot, not a change.
	Snapshot bool

	report   func(*Message, error)
	valid    func() bool // nil: use the flight's
	flight   *flight
	attempts int   // that the target has refused
	err      error // of the last attempt
	tried    bool  // there was an attempt
	alone    bool  // the last attempt published nothing else
	state    state
}

// Namespace returns the namespace, or only the database if the change has no collection.
func (m *Message) Namespace() string {
	if m.Coll == "" {
		return m.DB
	}
	return m.DB + "." + m.Coll
}

// OpLoss is the Op of a loss.
const OpLoss = "loss"

type state uint8

// The states of a message.
const (
	waiting state = iota // it is not published yet, or its attempt has failed
	underWay
	over
	parked // it waits for its destination
)

// Done reports the outcome of an attempt to publish the message: nil if the target has acknowledged
// it. It may be called by any goroutine, exactly once for each Publish. After an acknowledgement
// the target must not use the message: its memory becomes that of other messages.
func (m *Message) Done(err error) { m.report(m, err) }

// Report makes a message report its outcomes to a function. It is for callers that publish messages
// without a sink, like One.
func Report(m *Message, outcome func(error)) { m.report = func(_ *Message, err error) { outcome(err) } }

// Own sets the function that reports whether the term of a message is valid. It is for callers that
// publish messages without a sink.
func Own(m *Message, valid func() bool) { m.valid = valid }

// owned reports whether the node still owns the message's partition under the term of its batch.
// Without a session there are no terms.
func (m *Message) owned() bool {
	if m.valid != nil {
		return m.valid()
	}
	if m.flight == nil || m.flight.shared == nil || m.Op == OpLoss {
		return true
	}
	term, hands := m.flight.shared.Term(m.Partition, m.flight.seq)
	return hands && term.Epoch == m.Epoch
}

// Owned returns the messages before the first whose term has ended. It asks once for those of a
// batch that share a term, also if partitions alternate.
func Owned(messages []*Message) []*Message {
	var asked [64]*Message // by partition, a few of which may share a place
	for i, m := range messages {
		place := int(m.Partition) % len(asked)
		isAsked := func(n *Message) bool { return n != nil && m.flight == n.flight && m.SharesTerm(n) }
		if m.valid == nil && isAsked(asked[place]) {
			continue
		}
		if !m.owned() {
			return messages[:i]
		}
		asked[place] = m
	}
	return messages
}

// A Target publishes messages. Its methods are called by one goroutine at a time.
type Target interface {
	// Publish starts to publish a message and returns without waiting for the outcome, which it
	// reports by Message.Done. It may block while too many messages are under way. The target
	// publishes the messages of a partition in the order of the calls. After a failure it does not
	// have to publish later messages that are under way, but it reports an outcome for each within
	// a bounded time.
	Publish(ctx context.Context, m *Message)
	// Flush starts to publish all messages that Publish has buffered, and tells the target that the
	// sink knows all failures so far. It does not wait.
	Flush()
	// Check connects to the target and reports whether it accepts messages, and further findings.
	// Both are for people.
	Check(ctx context.Context) (found string, err error)
	// Close cancels the messages under way, and closes the connections.
	Close()
}

// A RefusedError reports that the target has refused a message, and would accept others.
type RefusedError struct {
	Err error
	// Final says that it would refuse the message again.
	Final bool
	// Among says that the target refuses messages that arrive together as a whole, so that the
	// cause may be another one of them. The refusal counts when the message was published alone.
	Among bool
	// Destination says that the target takes nothing for the message's destination: a topic, a
	// stream or a right is missing. That judges no message, so none becomes a dead letter: they
	// wait and are tried again until the target takes them.
	Destination bool
}

func (e *RefusedError) Error() string { return "refused: " + e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

var (
	// ErrReplaced reports that another process publishes the partition: this one has lost it, or
	// will notice that soon.
	ErrReplaced = errors.New("another process publishes this partition")
	// ErrEarlier reports that the message was not published because an earlier one failed.
	ErrEarlier = errors.New("not published: an earlier message failed")
	// ErrGone reports that the target refuses all further messages, and an operator must act.
	ErrGone = errors.New("the target refuses all messages")
)

// One publishes a copy of a message to a target and returns the outcome, which is unknown if the
// context ends first.
func One(ctx context.Context, t Target, m *Message) error {
	single := *m
	outcome := make(chan error, 1)
	Report(&single, func(err error) { outcome <- err })
	t.Flush() // earlier failures are known
	t.Publish(ctx, &single)
	t.Flush()
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
