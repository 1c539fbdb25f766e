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
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mongostream/streamer/fault"
)

// The driver looks for a server that fits until its time is over, also where all servers have
// answered and none fits: of those that belong to another set, or whose certificate it refuses, it
// reports no server at all. So after a short while the servers are asked one by one.
const (
	soon       = 2 * time.Second
	askTimeout = 3 * time.Second
)

// meet reaches the deployment for the first time. Where its servers answer and cannot be worked
// with, it says so within seconds.
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

// guess adds to an error what may be the reason of servers that end connections before they answer.
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

// closed reports whether the other side has ended a connection.
func closed(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

// answered reports whether an error is what a server has answered.
func answered(err error) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && !server.HasErrorLabel("NetworkError")
}

// misfit asks every server that the connection string names what it is, and returns why none of
// them fits; nil where one does, or where one that does not answer may.
func (c *Client) misfit(ctx context.Context) error {
	c.mu.Lock()
	o, err := c.mu.uri.Options()
	c.mu.Unlock()
	if err != nil || len(o.Hosts) == 0 {
		return nil //nolint:nilerr // it was fine a moment ago
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

// ask asks one server what it is, which nobody needs a right for.
func (c *Client) ask(ctx context.Context, o *options.ClientOptions, host string) (hello, error) {
	ctx, cancel := context.WithTimeout(ctx, min(askTimeout, c.cfg.SelectionTimeout))
	defer cancel()
	d := direct(o, host).SetAppName(c.cfg.Application)
	d.Auth, d.ReplicaSet = nil, nil
	driver, err := mongo.Connect(d)
	if err != nil {
		return hello{}, fmt.Errorf("ask %s: %w", host, err)
	}
	defer disconnect(ctx, driver)
	h, err := helloOf(ctx, driver)
	if selection, ok := errors.AsType[topology.ServerSelectionError](err); ok && len(selection.Desc.Servers) > 0 {
		err = cmp.Or(selection.Desc.Servers[0].LastError, err)
	}
	return h, err
}

// router reports whether the server is a mongos.
func (h hello) router() bool { return h.Message == "isdbgrid" }

// fits reports whether the driver works with a server that the connection string names, among so
// many, as a member of a set; any set fits where the name is empty. A member of a set that has yet
// to be initiated may become one.
func (h hello) fits(set string, hosts int) bool {
	switch {
	case h.Uninitiated:
		return true
	case set != "":
		return h.SetName == set
	}
	return h.SetName != "" || h.router() || hosts == 1
}

// kind says what a server is: the name of its set, or that it has none.
func (h hello) kind() string {
	switch {
	case h.router():
		return "a router (mongos)"
	case h.SetName == "":
		return "a standalone server"
	}
	return h.SetName
}
