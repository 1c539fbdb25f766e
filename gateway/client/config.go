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

	"github.com/mongostream/streamer/gateway/client/link"
	"github.com/mongostream/streamer/gateway/client/notice"
	"github.com/mongostream/streamer/gateway/client/subscription"
	"github.com/mongostream/streamer/gateway/streampb"
)

// Config configures a Client.
type Config struct {
	// Addresses are those of nodes, host:port, or of what balances between them. After each failure the next one is tried. Required.
	Addresses []string
	// GatewayID names the program, the same after a restart. Nodes keep its positions under it for a day; of two processes with one id the
	// one that started later wins. Required.
	GatewayID string
	// TLS configures the connection. nil is plaintext, which is refused for addresses off this machine unless Plaintext allows it.
	TLS       *tls.Config
	Plaintext bool
	// Token returns the bearer token, for each connection anew; nil sends none. In plaintext it is sent to this machine only: whoever can
	// listen on the way would have it. TokenInPlaintext, beside Plaintext, says that something between here and the nodes speaks TLS.
	Token            func(context.Context) (string, error)
	TokenInPlaintext bool

	// Start says where to begin where there are no positions. There is no default.
	Start Start
	// Time is where StartTime begins.
	Time time.Time
	// Positions are where the program stands, if it keeps its positions itself. Start must then be StartResume.
	Positions *Positions
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
	// received meanwhile. Defaults to Stop: a program that receives nothing would not notice. A refused subscription that was made while Run
	// runs never ends it. OnNotice hears of those that Run goes on without.
	OnRejected func(context.Context, notice.Rejected) Decision
	// OnNotice hears of losses, in their place between the changes of a partition, and of how the service does. Losses come from the
	// goroutine of their partition, and are tried again like changes if it fails; everything else comes from a goroutine of its own,
	// in order, and an error is only logged. Required: a program that does not want to know of losses says so by a function that does
	// nothing.
	OnNotice func(context.Context, notice.Notice) error
	// OnCollection, if there is one, hears once of each drop, rename, dropDatabase and the like, after every partition has passed it. It is
	// called from OnNotice's goroutine.
	OnCollection func(context.Context, Change)
	// Checks, if there is one, says how the program does; it goes to the node with every heartbeat.
	Checks func() []Check

	// QueueBytes bounds the changes that wait for their handlers. A single batch may go beyond. Defaults to 64 MiB.
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
type Start int32

// The beginnings.
const (
	// StartResume is behind the positions given, or behind those that the node keeps under the gateway's id; where it has none, with
	// what happens from now on, after a Resync.
	StartResume = Start(streampb.Start_START_RESUME)
	// StartNow is with what happens from now on: from before Connected is told.
	StartNow = Start(streampb.Start_START_NOW)
	// StartEarliest is with the oldest change that MongoDB still has.
	StartEarliest = Start(streampb.Start_START_EARLIEST)
	// StartTime is at a time.
	StartTime = Start(streampb.Start_START_TIME)
)

// Acks says when changes count as acknowledged.
type Acks int

// The ways to acknowledge.
const (
	// AckHandled acknowledges a batch when the handlers of its changes have returned.
	AckHandled Acks = iota
	// AckAuto lets the node count as acknowledged what it has sent. A program that crashes, and keeps no positions itself, may lose changes.
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
		c.OnRejected = func(context.Context, notice.Rejected) Decision { return Stop }
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
	check(c.GatewayID != "", "GatewayID: none is given")
	check(c.OnNotice != nil, "OnNotice: none is given; losses are told there")
	check(c.Start >= StartResume && c.Start <= StartTime, "Start: must be StartResume, StartNow, StartEarliest or StartTime")
	check((c.Start == StartTime) != c.Time.IsZero(), "Time: goes with StartTime")
	if c.Positions != nil {
		check(c.Start == StartResume, "Positions: go with StartResume")
		check(c.Positions.Complete(), "Positions: must be of every partition")
		check(c.Positions.Cluster != "", "Positions: do not say of which cluster they are")
	}
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
func (c *Config) secure(host string) bool { return c.TLS != nil || c.Plaintext || link.IsHere(host) }

func (c *Config) secret(host string) bool {
	return c.TLS != nil || c.Token == nil || c.TokenInPlaintext || link.IsHere(host)
}

// dialable reports whether an address that a node tells may be connected to.
func (c *Config) dialable(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && c.secure(host) && c.secret(host)
}

// A Subscription is a filter.
type Subscription = subscription.Subscription

// The formats in which changes are written.
const (
	BSON = subscription.BSON // the change event as MongoDB sent it
	JSON = subscription.JSON // the same as relaxed Extended JSON
)

// The deletes that a filter gets that reads the document, which has gone by then.
const (
	DeletesAll    = subscription.DeletesAll // all of its namespaces, with their keys only
	DeletesNone   = subscription.DeletesNone
	DeletesBefore = subscription.DeletesBefore // those whose document before the deletion matches; MongoDB must keep pre-images
)

// Format is how a change is written.
type Format = subscription.Format

// Deletes says which deletes a filter gets that reads the document.
type Deletes = subscription.Deletes
