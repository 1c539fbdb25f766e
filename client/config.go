package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/mongostream/streamer/gateway/streampb"
)

// Config configures a Client.
type Config struct {
	// Addresses are the host:port of nodes or of a load balancer. The client tries them in turn.
	// Required.
	Addresses []string
	// Subscriber is the durable name of the program. The nodes save a checkpoint under it, and a
	// restart resumes there. If two processes use one name, the one that started later wins and the
	// other's Run ends. Without a name nothing is saved, and a restart begins at Position or Start.
	Subscriber string
	// TLS configures the connection. nil means plaintext, which is allowed to the local host only
	// unless Plaintext is set.
	TLS       *tls.Config
	Plaintext bool
	// Token returns the bearer token and is called for each connection; nil sends none. In
	// plaintext the token is sent to the local host only. Set TokenInPlaintext in addition to
	// Plaintext if a proxy between the client and the nodes provides TLS.
	Token            func(context.Context) (string, error)
	TokenInPlaintext bool

	// Position is the position that the program saved itself (see Client.Position). It takes
	// precedence over the checkpoint.
	Position Position
	// Start says where to begin without a Position and without a checkpoint. Required.
	Start Start
	// Time is where StartTime begins. Required with StartTime, and only then.
	Time time.Time
	// Acks says when changes are acknowledged. Defaults to AckHandled.
	Acks Acks

	// Partitions says how sessions are spread over nodes. Defaults to All.
	Partitions Partitions

	// Concurrency is the number of partitions handled concurrently. Defaults to 16.
	Concurrency int
	// Attempts is how often a handler is called for a change before OnPoison decides. Defaults to
	// 5.
	Attempts int
	// RetryWait and MaxRetryWait are the first and the longest wait between the attempts of a
	// handler. Default to 100 ms and 10 s.
	RetryWait, MaxRetryWait time.Duration
	// OnPoison decides what happens to a change or notice that has failed Attempts times. Defaults
	// to Stop.
	OnPoison func(context.Context, Poison) Decision
	// OnRejected decides what happens when a node rejects a subscription that was made before Run,
	// for example because its filter is invalid or access is denied. Stop makes Run return the
	// node's *Error; Skip continues without the subscription. It must not block, because nothing is
	// received meanwhile. Defaults to Stop, because otherwise a program that receives nothing might
	// go unnoticed. It is not called for subscriptions made while Run runs. OnNotice receives every
	// Rejected.
	OnRejected func(context.Context, Rejected) Decision
	// OnNotice receives notices. Resync, Rewound, SnapshotBegun and SnapshotDone arrive in order
	// with the changes: everything before them has been handled and nothing after them. If OnNotice
	// returns an error for one of these, it is retried like a handler. All other notices arrive in
	// order from a separate goroutine, and an error is only logged. Without OnNotice a Resync ends
	// Run, whatever OnPoison decides, because a program that ignores losses must say so with a
	// function that does nothing; the others are ignored.
	OnNotice func(context.Context, Notice) error
	// Checks returns the program's own health checks, which are sent to the node with every
	// heartbeat: at most 32, whose names have 1 to 256 bytes. While one fails, operators see the
	// subscriber as degraded. Optional.
	Checks func() []Check

	// QueueBytes bounds the messages that wait for handlers. Each session may exceed it by one
	// message. Defaults to 64 MiB.
	QueueBytes int
	// MaxMessage bounds one message from the node, which holds at least one change. Defaults to 128
	// MiB, because a 16 MiB change is larger as JSON.
	MaxMessage int
	// Timeout bounds the wait for the node's answer to a Hello, and for any message until the node
	// has announced its heartbeat interval. Defaults to 30 s.
	Timeout time.Duration
	// ReconnectWait and MaxReconnectWait are the first and the longest wait between connection
	// attempts. Default to 100 ms and 10 s.
	ReconnectWait, MaxReconnectWait time.Duration
	// StopTimeout bounds how long Run waits at the end for the node to receive the last
	// acknowledgements. Defaults to 1 s.
	StopTimeout time.Duration
	// Logger gets the actions of the client: sessions that begin at level info, those that end and
	// are opened again at warn. Defaults to one that writes warnings to standard error.
	Logger *slog.Logger
}

// Start says where a client without a saved position begins.
type Start int

// The start policies.
const (
	// StartResume begins nowhere: without a saved position, Run returns the node's Error,
	// STRM-SESSION-UNKNOWN.
	StartResume Start = iota + 1
	// StartNow begins with new changes: with those that happen after the session is opened.
	StartNow
	// StartEarliest begins with the oldest change in the oplog.
	StartEarliest
	// StartTime begins at Config.Time.
	StartTime
	// StartSnapshot begins with new changes, and every subscription also gets the documents that
	// exist, in their place among the changes (see Change.Snapshot and SnapshotBegun). A restart
	// resumes, with what is left of the snapshots. A subscription that has had no snapshot, because
	// it is new or was not made before the restart, gets one. Without DB and Coll it gets all
	// collections that the nodes watch. Requires a Subscriber and Partitions All, because the node
	// keeps the progress in the subscriber's checkpoint, and AckHandled or AckManual, because that
	// may not pass documents that the program does not have yet.
	StartSnapshot
)

func (s Start) message() streampb.Start {
	switch s {
	case StartNow:
		return streampb.Start_START_NOW
	case StartEarliest:
		return streampb.Start_START_EARLIEST
	case StartTime:
		return streampb.Start_START_TIME
	case StartSnapshot:
		return streampb.Start_START_SNAPSHOT
	default:
		return streampb.Start_START_RESUME
	}
}

// Acks says when changes are acknowledged.
type Acks int

// The acknowledgement modes.
const (
	// AckHandled acknowledges a batch when its changes, and all before it, have been handled.
	AckHandled Acks = iota
	// AckAuto lets the node count changes as acknowledged when it has sent them. A program that
	// crashes may lose changes unless it saves its own Position.
	AckAuto
	// AckManual acknowledges the positions that the program passes to Client.Acknowledge. Handlers
	// may return as soon as they have handed a change to another goroutine. After a reconnect the
	// session begins at the last acknowledged position, and changes that were handed over before
	// are dropped. Many documents of a snapshot share a place: they are acknowledged with a
	// Position that Client.Position has returned after all of their batch had been handed over, or
	// with one of a later change. Requires Partitions All.
	AckManual
)

// Partitions says how sessions are spread over nodes.
type Partitions int

// The partition modes.
const (
	// All uses one session with one node, which serves all partitions, whatever their owners. When
	// the node is about to stop, the client connects to another of its Addresses before it leaves,
	// and drops duplicates.
	All Partitions = iota
	// Owned uses one session with each node, for the partitions that the node owns, so that the
	// cluster shares the load. The client follows partitions when they move. Addresses are used to
	// find a first node; the nodes announce the others.
	Owned
)

// A Check is the result of one of the program's own health checks.
type Check struct {
	Name string
	OK   bool
	Text string // cut after 4096 bytes
}

// A Subscription selects changes. An empty field selects all.
type Subscription struct {
	// ID identifies the subscription within the client. Required.
	ID       string
	DB, Coll string
	// Ops are operation types: insert, update, replace, delete, drop, …
	Ops []string
	// Filter is a CEL expression over doc, before, op, ns, key and update.
	Filter string
	// Format is the encoding of changes. Defaults to BSON.
	Format Format
	// Fields are the top-level document fields to send, in addition to _id. Empty sends all.
	Fields []string
	// Deletes says which deletes match a filter that reads doc. Defaults to DeletesAll.
	Deletes Deletes
	// OnLoss says what follows a Resync. Defaults to LossNotify.
	OnLoss OnLoss
	// Leaves also sends a change when a document stops matching, of the operation "left", with the
	// documentKey only. It is known by the pre-image where MongoDB keeps one, otherwise by the
	// documents that the session was sent. Where that is not known either, after a restart or of
	// too many documents, one comes for every change after which a document does not match.
	Leaves bool
}

// OnLoss says what a subscription gets after a Resync.
type OnLoss int

// The policies for losses.
const (
	LossNotify OnLoss = iota // the Resync only, unless the nodes are configured to read its collection again
	// LossSnapshot sends the documents of the collections that the loss concerns again, in their
	// place among the changes. It requires what StartSnapshot requires.
	LossSnapshot
)

// Format is the encoding of a change.
type Format int

// The formats.
const (
	BSON Format = iota // the change event as MongoDB sent it
	JSON               // the same as relaxed Extended JSON
)

// Deletes says which deletes match a filter that reads doc, because a delete does not carry the
// document.
type Deletes int

// The policies for deletes.
const (
	DeletesAll    Deletes = iota // all deletes in the namespaces of the subscription, with keys only
	DeletesNone                  // no deletes
	DeletesBefore                // deletes whose document matched before the deletion; requires pre-images in MongoDB
)

func (s *Subscription) message() *streampb.Subscription {
	m := &streampb.Subscription{
		Id: s.ID, Db: s.DB, Coll: s.Coll, Ops: s.Ops, Filter: s.Filter, Fields: s.Fields,
		Format: streampb.Format_FORMAT_BSON, Deletes: streampb.Deletes_DELETES_ALL, Leaves: s.Leaves,
	}
	if s.Format == JSON {
		m.Format = streampb.Format_FORMAT_JSON
	}
	if s.OnLoss == LossSnapshot {
		m.OnLoss = streampb.OnLoss_ON_LOSS_SNAPSHOT
	}
	switch s.Deletes {
	case DeletesNone:
		m.Deletes = streampb.Deletes_DELETES_NONE
	case DeletesBefore:
		m.Deletes = streampb.Deletes_DELETES_BEFORE
	case DeletesAll:
	}
	return m
}

// withDefaults fills in the defaults.
func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, 16)
	c.Attempts = cmp.Or(c.Attempts, 5)
	c.RetryWait, c.MaxRetryWait = cmp.Or(c.RetryWait, 100*time.Millisecond), cmp.Or(c.MaxRetryWait, 10*time.Second)
	c.QueueBytes, c.MaxMessage = cmp.Or(c.QueueBytes, 64<<20), cmp.Or(c.MaxMessage, 128<<20)
	c.Timeout, c.StopTimeout = cmp.Or(c.Timeout, 30*time.Second), cmp.Or(c.StopTimeout, time.Second)
	c.ReconnectWait, c.MaxReconnectWait = cmp.Or(c.ReconnectWait, 100*time.Millisecond), cmp.Or(c.MaxReconnectWait, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if c.OnPoison == nil {
		c.OnPoison = func(context.Context, Poison) Decision { return Stop }
	}
	if c.OnNotice == nil {
		c.OnNotice = refuseLosses
	}
	if c.OnRejected == nil {
		c.OnRejected = func(context.Context, Rejected) Decision { return Stop }
	}
	return c
}

// errUnheard says that a program has no function for losses: no retry and no OnPoison may skip it.
var errUnheard = errors.New("set Config.OnNotice and read the documents again there")

// refuseLosses is OnNotice of a program that has none.
func refuseLosses(_ context.Context, n Notice) error {
	if lost, is := n.(Resync); is {
		return fmt.Errorf("changes of %s until %s may have been missed (%s): %w",
			cmp.Or(strings.Join(lost.Namespaces, ", "), "all collections"), lost.To.UTC().Format(time.RFC3339), lost.Reason, errUnheard)
	}
	return nil
}

// Validate returns all errors in the configuration, joined.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(c.Addresses) > 0, "Addresses: required")
	for _, address := range c.Addresses {
		host, _, err := net.SplitHostPort(address[strings.LastIndexByte(address, '/')+1:])
		check(err == nil, "Addresses: %q is not host:port", address)
		check(err != nil || c.secure(host), "Addresses: %q would be used without TLS: set TLS, or allow it with Plaintext", address)
		check(err != nil || !c.secure(host) || c.secret(host), "Addresses: %q would receive the token in plaintext: set TLS, or allow it with TokenInPlaintext", address)
	}
	check(c.Start >= StartResume && c.Start <= StartSnapshot, "Start: must be StartResume, StartNow, StartEarliest, StartTime or StartSnapshot")
	check(c.Start != StartSnapshot || c.Subscriber != "" && c.Partitions == All && c.Acks != AckAuto,
		"Start: StartSnapshot needs a Subscriber, All, and AckHandled or AckManual")
	check((c.Start == StartTime) != c.Time.IsZero(), "Time: must be set with StartTime, and only then")
	check(c.Start != StartResume || c.Subscriber != "" || !c.Position.IsZero(), "Start: StartResume needs a Subscriber or a Position")
	check(c.Partitions == All || c.Partitions == Owned, "Partitions: must be All or Owned")
	check(c.Acks >= AckHandled && c.Acks <= AckManual, "Acks: must be AckHandled, AckAuto or AckManual")
	check(c.Acks != AckManual || c.Partitions == All, "Acks: AckManual needs Partitions All")
	for name, n := range map[string]int64{
		"Concurrency": int64(c.Concurrency), "Attempts": int64(c.Attempts), "QueueBytes": int64(c.QueueBytes), "MaxMessage": int64(c.MaxMessage),
		"RetryWait": int64(c.RetryWait), "MaxRetryWait": int64(c.MaxRetryWait), "Timeout": int64(c.Timeout), "StopTimeout": int64(c.StopTimeout),
		"ReconnectWait": int64(c.ReconnectWait), "MaxReconnectWait": int64(c.MaxReconnectWait),
	} {
		check(n >= 0, "%s: must not be negative", name)
	}
	return errors.Join(errs...)
}

// secure reports whether connecting to a host is allowed; secret reports whether sending it the
// token is allowed.
func (c *Config) secure(host string) bool { return c.TLS != nil || c.Plaintext || isHere(host) }

func (c *Config) secret(host string) bool {
	return c.TLS != nil || c.Token == nil || c.TokenInPlaintext || isHere(host)
}

// dialable reports whether connecting to an address that a node announced is allowed.
func (c *Config) dialable(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && c.secure(host) && c.secret(host)
}

// isHere reports whether a host is the local host. Names are not resolved.
func isHere(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
