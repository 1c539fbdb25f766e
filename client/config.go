package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/mongostream/streamer/gateway/streampb"
)

// Config configures a Client.
type Config struct {
	// Addresses are those of nodes, host:port, or of a load balancer. After each failure the next one is tried. Required.
	Addresses []string
	// Subscriber names the program, the same after a restart. The nodes keep a checkpoint under the name, and go on there. Of two processes
	// with one name the one that started later wins. Without a name nothing is kept, and a restart begins at Position, or as Start says.
	Subscriber string
	// TLS configures the connection. nil is plaintext, which is refused for addresses off this machine unless Plaintext allows it.
	TLS       *tls.Config
	Plaintext bool
	// Token returns the bearer token, for each connection anew; nil sends none. In plaintext it is sent to this machine only.
	// TokenInPlaintext, beside Plaintext, says that something between here and the nodes speaks TLS.
	Token            func(context.Context) (string, error)
	TokenInPlaintext bool

	// Position is where the program is, if it keeps its position itself (see Client.Position). It comes before the checkpoint.
	Position Position
	// Start says where to begin where nothing is known: neither a Position, nor a checkpoint. There is no default.
	Start Start
	// Time is where StartTime begins.
	Time time.Time
	// Acks says when changes count as acknowledged. Defaults to when they have been handled.
	Acks Acks

	// Partitions says which node serves which partition. Defaults to All.
	Partitions Partitions

	// Concurrency is how many partitions are handled at a time. Defaults to 16.
	Concurrency int
	// Attempts is how often a handler is called for a change that it fails on. Defaults to 5.
	Attempts int
	// RetryWait is the wait after the first failure of a handler, MaxRetryWait the longest. Default to 100 ms and 10 s.
	RetryWait, MaxRetryWait time.Duration
	// OnPoison decides about what has failed so often. Defaults to Stop.
	OnPoison func(context.Context, Poison) Decision
	// OnRejected decides about a subscription made before Run that a node refuses, because of its filter, say, or because the program may not
	// have it: Stop ends Run with what the node said, an *Error; Skip goes on without the subscription. It must not block: nothing is
	// received meanwhile. Defaults to Stop, because a program that receives nothing would not notice. A refused subscription that was made
	// while Run runs never ends it. OnNotice hears of those that Run goes on without.
	OnRejected func(context.Context, Rejected) Decision
	// OnNotice hears of losses, Resync and Rewound, in their place between the changes: everything before has been handled, nothing after
	// it has. If it fails it is called again, as handlers are. Everything else, about the service, comes in order from a goroutine of its
	// own, and an error is only logged. Required: a program that does not want to hear of losses says so by a function that does nothing.
	OnNotice func(context.Context, Notice) error
	// Checks, if there is one, says how the program does; it goes to the node with every heartbeat.
	Checks func() []Check

	// QueueBytes bounds the messages that wait for their handlers. One of each session may go beyond. Defaults to 64 MiB.
	QueueBytes int
	// MaxMessage bounds one message of the node, which holds at least one change. Defaults to 128 MiB: a change of 16 MiB is longer as JSON.
	MaxMessage int
	// Timeout is how long a node may take to answer a Hello, and be silent before it has said how often it sends heartbeats. Defaults to 30 s.
	Timeout time.Duration
	// ReconnectWait is the wait after the first failure to connect, MaxReconnectWait the longest. Default to 100 ms and 10 s.
	ReconnectWait, MaxReconnectWait time.Duration
	// StopTimeout is how long Run waits at its end for the node to take the last acknowledgements. Defaults to 1 s.
	StopTimeout time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
}

// Start says where a client begins of which nothing is known.
type Start int

// The beginnings.
const (
	// StartResume is nowhere: Run ends with the node's Error, STRM-SESSION-UNKNOWN.
	StartResume Start = iota + 1
	// StartNow is with what happens from now on: from before Connected is told.
	StartNow
	// StartEarliest is with the oldest change that MongoDB still has.
	StartEarliest
	// StartTime is at a time.
	StartTime
)

func (s Start) message() streampb.Start {
	switch s {
	case StartNow:
		return streampb.Start_START_NOW
	case StartEarliest:
		return streampb.Start_START_EARLIEST
	case StartTime:
		return streampb.Start_START_TIME
	default:
		return streampb.Start_START_RESUME
	}
}

// Acks says when changes count as acknowledged.
type Acks int

// The ways to acknowledge.
const (
	// AckHandled acknowledges a batch when the handlers of its changes, and of all before it, have returned.
	AckHandled Acks = iota
	// AckAuto lets the node count as acknowledged what it has sent. A program that crashes, and keeps no position itself, may lose changes.
	AckAuto
)

// Partitions says which node serves which partition.
type Partitions int

// The ways to spread partitions over nodes.
const (
	// All has one session with one node, which serves everything whoever owns it. While a node stops, the client connects to another of its
	// Addresses first, and drops what both send by position.
	All Partitions = iota
	// Owned has a session with each node for the partitions that it owns, so that the cluster shares the work, and follows them when they
	// move. Addresses are where the topology is first asked for.
	Owned
)

// A Check is something that a program watches in itself.
type Check struct {
	Name string
	OK   bool
	Text string
}

// A Subscription is a filter. Fields that are left out do not narrow it.
type Subscription struct {
	// ID names it among the subscriptions of the client. Required.
	ID       string
	DB, Coll string
	// Ops are insert, update, replace, delete, drop, …
	Ops []string
	// Filter is a CEL expression over doc, before, op, ns, key and update.
	Filter string
	// Format is how changes are written. Defaults to BSON.
	Format Format
	// Fields are the top-level fields of documents to send besides _id.
	Fields []string
	// Deletes says which deletes a filter gets that reads the document, which has gone by then. Defaults to all.
	Deletes Deletes
}

// Format is how a change is written.
type Format int

// The formats.
const (
	BSON Format = iota // the change event as MongoDB sent it
	JSON               // the same as relaxed Extended JSON
)

// Deletes says which deletes a filter gets that reads the document.
type Deletes int

// The deletes.
const (
	DeletesAll    Deletes = iota // all of its namespaces, with their keys only
	DeletesNone                  // none
	DeletesBefore                // those whose document before the deletion matches; MongoDB must keep pre-images
)

func (s *Subscription) message() *streampb.Subscription {
	m := &streampb.Subscription{
		Id: s.ID, Db: s.DB, Coll: s.Coll, Ops: s.Ops, Filter: s.Filter, Fields: s.Fields,
		Format: streampb.Format_FORMAT_BSON, Deletes: streampb.Deletes_DELETES_ALL,
	}
	if s.Format == JSON {
		m.Format = streampb.Format_FORMAT_JSON
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

// withDefaults fills in what is not given.
func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, 16)
	c.Attempts = cmp.Or(c.Attempts, 5)
	c.RetryWait, c.MaxRetryWait = cmp.Or(c.RetryWait, 100*time.Millisecond), cmp.Or(c.MaxRetryWait, 10*time.Second)
	c.QueueBytes, c.MaxMessage = cmp.Or(c.QueueBytes, 64<<20), cmp.Or(c.MaxMessage, 128<<20)
	c.Timeout, c.StopTimeout = cmp.Or(c.Timeout, 30*time.Second), cmp.Or(c.StopTimeout, time.Second)
	c.ReconnectWait, c.MaxReconnectWait = cmp.Or(c.ReconnectWait, 100*time.Millisecond), cmp.Or(c.MaxReconnectWait, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.OnPoison == nil {
		c.OnPoison = func(context.Context, Poison) Decision { return Stop }
	}
	if c.OnRejected == nil {
		c.OnRejected = func(context.Context, Rejected) Decision { return Stop }
	}
	return c
}

// Validate returns everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(c.Addresses) > 0, "Addresses: none is given")
	for _, address := range c.Addresses {
		host, _, err := net.SplitHostPort(address[strings.LastIndexByte(address, '/')+1:])
		check(err == nil, "Addresses: %q is not host:port", address)
		check(err != nil || c.secure(host), "Addresses: %q without TLS: set TLS, or allow it with Plaintext", address)
		check(err != nil || !c.secure(host) || c.secret(host), "Addresses: %q would be sent the token in plaintext: set TLS, or allow it with TokenInPlaintext", address)
	}
	check(c.OnNotice != nil, "OnNotice: none is given; losses are told there")
	check(c.Start >= StartResume && c.Start <= StartTime, "Start: must be StartResume, StartNow, StartEarliest or StartTime")
	check((c.Start == StartTime) != c.Time.IsZero(), "Time: goes with StartTime")
	check(c.Start != StartResume || c.Subscriber != "" || !c.Position.IsZero(), "Start: there is nothing to resume without Subscriber and Position")
	check(c.Partitions == All || c.Partitions == Owned, "Partitions: must be All or Owned")
	check(c.Acks == AckHandled || c.Acks == AckAuto, "Acks: must be AckHandled or AckAuto")
	for name, n := range map[string]int64{
		"Concurrency": int64(c.Concurrency), "Attempts": int64(c.Attempts), "QueueBytes": int64(c.QueueBytes), "MaxMessage": int64(c.MaxMessage),
		"RetryWait": int64(c.RetryWait), "MaxRetryWait": int64(c.MaxRetryWait), "Timeout": int64(c.Timeout), "StopTimeout": int64(c.StopTimeout),
		"ReconnectWait": int64(c.ReconnectWait), "MaxReconnectWait": int64(c.MaxReconnectWait),
	} {
		check(n >= 0, "%s: must not be negative", name)
	}
	return errors.Join(errs...)
}

// secure reports whether a host may be connected to, secret whether it may be sent a token, if there is one.
func (c *Config) secure(host string) bool { return c.TLS != nil || c.Plaintext || isHere(host) }

func (c *Config) secret(host string) bool {
	return c.TLS != nil || c.Token == nil || c.TokenInPlaintext || isHere(host)
}

// dialable reports whether an address that a node tells may be connected to.
func (c *Config) dialable(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && c.secure(host) && c.secret(host)
}

// isHere reports whether a host is this machine. Names are not looked up.
func isHere(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
