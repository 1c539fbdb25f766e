package mongodb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mongostream/streamer/fault"
)

// The driver searches for a usable server until its selection timeout, even if all servers have
// answered and none is usable. It reports no server at all if they belong to another set or it
// refuses their certificates. So after a short while we ask the servers one by one.
const (
	soon       = 2 * time.Second
	askTimeout = 3 * time.Second
)

// meet reaches the deployment for the first time. If its servers answer but are not usable, it
// returns the reason within seconds.
func (c *Client) meet(ctx context.Context) (hello, error) {
	first, cancel := context.WithTimeout(ctx, min(soon, c.cfg.SelectionTimeout/2))
	defer cancel()
	h, err := c.hello(first)
	if err == nil || ctx.Err() != nil || answered(err) {
		return h, err
	}
	if misfit := c.misfit(ctx); misfit != nil {
		return h, misfit
	}
	if h, err = c.hello(ctx); err == nil || ctx.Err() != nil || answered(err) {
		return h, err
	}
	return h, cmp.Or(c.misfit(ctx), c.guess(err))
}

// guess adds a possible reason to the error if all servers close connections before they answer.
func (c *Client) guess(err error) error {
	selection, ok := errors.AsType[topology.ServerSelectionError](err)
	if !ok || len(selection.Desc.Servers) == 0 || slices.ContainsFunc(selection.Desc.Servers, func(s description.Server) bool { return !closed(s.LastError) }) {
		return err
	}
	c.mu.Lock()
	encrypted, _ := c.mu.uri.TLS()
	c.mu.Unlock()
	if encrypted {
		return fmt.Errorf("the server ends connections in the TLS handshake: perhaps it does not speak TLS: %w", err)
	}
	return fmt.Errorf("the server ends connections before it answers: perhaps it wants TLS (tls=true): %w", err)
}

// closed reports whether the other side has closed a connection.
func closed(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

// answered reports whether an error is a server's answer.
func answered(err error) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && !server.HasErrorLabel("NetworkError")
}

// misfit asks every server of the connection string for its kind, and returns why none of them is
// usable. It returns nil if one is usable, or may be but does not answer.
func (c *Client) misfit(ctx context.Context) error {
	c.mu.Lock()
	o, err := c.mu.uri.Options()
	c.mu.Unlock()
	if err != nil || len(o.Hosts) == 0 {
		return nil //nolint:nilerr // the same options were valid a moment ago
	}
	var asking sync.WaitGroup
	answers, errs := make([]hello, len(o.Hosts)), make([]error, len(o.Hosts))
	for i, host := range o.Hosts {
		asking.Go(func() { answers[i], errs[i] = c.ask(ctx, o, host) })
	}
	asking.Wait()
	if refused := slices.IndexFunc(errs, func(err error) bool { return certificate(err) == nil }); refused < 0 {
		return fault.Newf(fault.MongoCertificate, "%s: %w", o.Hosts[0], certificate(errs[0]))
	}
	set := ""
	if o.ReplicaSet != nil {
		set = *o.ReplicaSet
	}
	var kinds, each []string
	for i, h := range answers {
		if errs[i] != nil || h.fits(set, len(o.Hosts)) {
			return nil
		}
		kinds, each = append(kinds, h.kind()), append(each, o.Hosts[i]+": "+h.kind())
	}
	slices.Sort(kinds)
	switch kinds = slices.Compact(kinds); {
	case len(kinds) == 1 && kinds[0] == answers[0].SetName:
		return fault.Newf(fault.MongoReplicaSet, "the servers belong to %s, not to %s", kinds[0], set)
	case len(kinds) == 1 && answers[0].router():
		return fault.Newf(fault.MongoReplicaSet, "the servers are routers (mongos), not members of %s", set)
	case len(kinds) == 1:
		return fault.Newf(fault.MongoStandalone, "%s is a standalone server", o.Hosts[0])
	}
	return fault.Newf(fault.MongoReplicaSet, "the servers are not members of %s: %s", cmp.Or(set, "one set"), strings.Join(each, ", "))
}

// ask asks one server for its kind, which needs no right. If an attempt shows why a certificate is
// refused, that is the error, whatever becomes of later ones: the server's reset of a connection
// can overtake its alert.
func (c *Client) ask(ctx context.Context, o *options.ClientOptions, host string) (hello, error) {
	ctx, cancel := context.WithTimeout(ctx, min(askTimeout, c.cfg.SelectionTimeout))
	defer cancel()
	d := direct(o, host).SetAppName(c.cfg.Application)
	d.Auth, d.ReplicaSet = nil, nil
	var refusal atomic.Pointer[error]
	d.SetServerMonitor(refusals(&refusal))
	driver, err := mongo.Connect(d)
	if err != nil {
		return hello{}, fmt.Errorf("ask %s: %w", host, err)
	}
	defer disconnect(ctx, driver)
	h, err := helloOf(ctx, driver)
	if selection, ok := errors.AsType[topology.ServerSelectionError](err); ok && len(selection.Desc.Servers) > 0 {
		err = cmp.Or(selection.Desc.Servers[0].LastError, err)
	}
	if refused := refusal.Load(); err != nil && refused != nil {
		err = *refused
	}
	return h, err
}

// refusals returns a monitor that keeps the error of the last attempt that shows why a certificate
// is refused.
func refusals(last *atomic.Pointer[error]) *event.ServerMonitor {
	return &event.ServerMonitor{ServerHeartbeatFailed: func(e *event.ServerHeartbeatFailedEvent) {
		if certificate(e.Failure) != nil {
			last.Store(&e.Failure)
		}
	}}
}

// router reports whether the server is a mongos.
func (h hello) router() bool { return h.Message == "isdbgrid" }

// fits reports whether the driver can use the server. set is the required replica set, empty for
// any; hosts is the number of servers in the connection string. A server whose set is not initiated
// yet may become usable.
func (h hello) fits(set string, hosts int) bool {
	switch {
	case h.Uninitiated:
		return true
	case set != "":
		return h.SetName == set
	}
	return h.SetName != "" || h.router() || hosts == 1
}

// kind returns the name of the server's set, or a description of a server without one.
func (h hello) kind() string {
	switch {
	case h.router():
		return "a router (mongos)"
	case h.SetName == "":
		return "a standalone server"
	}
	return h.SetName
}
