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
	if misfit := c.askEach(ctx).misfit(); misfit != nil {
		return h, misfit
	}
	if h, err = c.hello(ctx); err == nil || ctx.Err() != nil || answered(err) {
		return h, err
	}
	asked := c.askEach(ctx)
	return h, cmp.Or(asked.misfit(), asked.guess(err))
}

// asked is what the servers of a connection string said, in its order. It is empty if nobody was
// asked.
type asked struct {
	to      *options.ClientOptions
	answers []hello
	errs    []error
}

// guess adds a possible reason to the error if all servers close connections before they answer.
func (a asked) guess(err error) error {
	if len(a.errs) == 0 || slices.ContainsFunc(a.errs, func(err error) bool { return !closed(err) }) {
		return err
	}
	if a.to.TLSConfig != nil {
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

// askEach asks every server of the connection string for its kind.
func (c *Client) askEach(ctx context.Context) asked {
	c.mu.Lock()
	o, err := c.mu.uri.Options()
	c.mu.Unlock()
	if err != nil {
		return asked{} // the same options were valid a moment ago
	}
	a := asked{to: o, answers: make([]hello, len(o.Hosts)), errs: make([]error, len(o.Hosts))}
	var asking sync.WaitGroup
	for i, host := range o.Hosts {
		asking.Go(func() { a.answers[i], a.errs[i] = c.ask(ctx, o, host) })
	}
	asking.Wait()
	return a
}

// misfit returns why none of the servers is usable. It returns nil if one is usable, or may be but
// does not answer.
func (a asked) misfit() error {
	if len(a.errs) == 0 {
		return nil
	}
	if refused := slices.IndexFunc(a.errs, func(err error) bool { return certificate(err) == nil }); refused < 0 {
		return fault.Newf(fault.MongoCertificate, "%s: %w", a.to.Hosts[0], certificate(a.errs[0]))
	}
	set := ""
	if a.to.ReplicaSet != nil {
		set = *a.to.ReplicaSet
	}
	var kinds, each []string
	for i, h := range a.answers {
		if a.errs[i] != nil || h.fits(set, len(a.to.Hosts)) {
			return nil
		}
		kinds, each = append(kinds, h.kind()), append(each, a.to.Hosts[i]+": "+h.kind())
	}
	slices.Sort(kinds)
	switch kinds = slices.Compact(kinds); {
	case len(kinds) == 1 && kinds[0] == a.answers[0].SetName:
		return fault.Newf(fault.MongoReplicaSet, "the servers belong to %s, not to %s", kinds[0], set)
	case len(kinds) == 1 && a.answers[0].router():
		return fault.Newf(fault.MongoReplicaSet, "the servers are routers (mongos), not members of %s", set)
	case len(kinds) == 1:
		return fault.Newf(fault.MongoStandalone, "%s is a standalone server", a.to.Hosts[0])
	}
	return fault.Newf(fault.MongoReplicaSet, "the servers are not members of %s: %s", cmp.Or(set, "one set"), strings.Join(each, ", "))
}

// ask asks one server for its kind, which needs no right. If an attempt shows why it failed, that
// is the error, whatever becomes of later ones: see telling.
func (c *Client) ask(ctx context.Context, o *options.ClientOptions, host string) (hello, error) {
	ctx, cancel := context.WithTimeout(ctx, min(askTimeout, c.cfg.SelectionTimeout))
	defer cancel()
	d := direct(o, host).SetAppName(c.cfg.Application)
	d.Auth, d.ReplicaSet = nil, nil
	var reason atomic.Pointer[error]
	d.SetServerMonitor(telling(&reason))
	driver, err := mongo.Connect(d)
	if err != nil {
		return hello{}, fmt.Errorf("ask %s: %w", host, err)
	}
	defer disconnect(ctx, driver)
	h, err := helloOf(ctx, driver)
	if selection, ok := errors.AsType[topology.ServerSelectionError](err); ok && len(selection.Desc.Servers) > 0 {
		err = cmp.Or(selection.Desc.Servers[0].LastError, err)
	}
	if told := reason.Load(); err != nil && told != nil {
		err = *told
	}
	return h, err
}

// telling returns a monitor that keeps the error of the last attempt that shows why a server does
// not answer. A server's reset of a connection can overtake the alert that says why it refuses a
// certificate, and the driver now and then reports a canceled context in place of what failed.
func telling(last *atomic.Pointer[error]) *event.ServerMonitor {
	return &event.ServerMonitor{ServerHeartbeatFailed: func(e *event.ServerHeartbeatFailedEvent) {
		refused := func(err *error) bool { return err != nil && certificate(*err) != nil }
		if refused(&e.Failure) || closed(e.Failure) && !refused(last.Load()) {
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
