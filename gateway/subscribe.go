package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/match"
)

// slowDown waits until the client may change n subscriptions; a change of none counts as one.
func (c *connection) slowDown(ctx context.Context, n int) error {
	c.silence.ignore(true)
	defer c.silence.ignore(false)
	if err := c.limit.WaitN(ctx, max(1, min(n, c.server.cfg.SubscribeBurst))); err != nil { // also before a deadline that it would exceed
		return cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
	}
	return nil
}

// mostEnded bounds the ended subscriptions that a connection remembers.
const mostEnded = 4096

// endedIDs are hashes of the IDs of subscriptions that have ended since the checkpoint was saved
// last: the checkpoint may still have their snapshots. The empty hash means any ID, if there are
// too many.
type endedIDs map[[8]byte]struct{}

func (e *endedIDs) add(ids []string) {
	if *e == nil {
		*e = make(endedIDs)
	}
	for _, id := range ids {
		if len(*e) >= mostEnded {
			(*e)[[8]byte{}] = struct{}{}
			return
		}
		(*e)[hashOf(id)] = struct{}{}
	}
}

func (e *endedIDs) has(id string) bool {
	_, all := (*e)[[8]byte{}]
	_, there := (*e)[hashOf(id)]
	return all || there
}

func hashOf(id string) [8]byte {
	sum := sha256.Sum256([]byte(id))
	return [8]byte(sum[:8])
}

// keepCost is how many subscriptions a save at once counts as, because the store writes for it.
const keepCost = 100

// slowDownFor waits until the client may change n subscriptions. If that saves its checkpoint, it
// counts as more, and waits until its identity has paid for its large checkpoints.
func (c *connection) slowDownFor(ctx context.Context, n int, keeps bool) error {
	if !keeps {
		return c.slowDown(ctx, n)
	}
	if err := c.slowDown(ctx, n+keepCost); err != nil {
		return err
	}
	c.silence.ignore(true)
	defer c.silence.ignore(false)
	return c.subscriber.Pay(ctx)
}

// subscribe adds subscriptions, and answers each.
func (c *connection) subscribe(ctx context.Context, wanted []*streampb.Subscription) error {
	if len(c.subscribed)+len(wanted) > c.server.cfg.MaxSubscriptions {
		return fault.Newf(fault.SessionTooWide, "a session has at most %d subscriptions", c.server.cfg.MaxSubscriptions)
	}
	again := slices.ContainsFunc(wanted, func(w *streampb.Subscription) bool {
		_, there := c.subscribed[w.GetId()]
		return there || c.ended.has(w.GetId())
	})
	keeps := again && c.unkept == nil // its checkpoint may say that one under the same id has had its snapshot
	if err := c.slowDownFor(ctx, len(wanted), keeps); err != nil {
		return err
	}
	subscriptions, answers, err := c.compile(ctx, wanted)
	if err != nil {
		return err
	}
	at, err := c.subscriber.Subscribe(subscriptions)
	if err != nil {
		return err
	}
	if keeps && c.subscriber.Keep(ctx) {
		c.ended = nil
	}
	from := at.Ref().Append(nil)
	for _, a := range answers {
		if subscribed := a.(*streampb.ConnectResponse).GetSubscribed(); subscribed != nil { //nolint:forcetypeassert // made by compile
			subscribed.From = from
		}
	}
	return c.writer.send(ctx, answers...)
}

// unsubscribe ends subscriptions.
func (c *connection) unsubscribe(ctx context.Context, ids []string) error {
	if err := c.slowDown(ctx, len(ids)); err != nil {
		return err
	}
	c.subscriber.Unsubscribe(ids)
	c.giveBack(ids)
	c.ended.add(ids)
	return nil
}

// compile compiles the requested subscriptions and returns an answer for each. It stops with the
// context, and returns its cause.
func (c *connection) compile(ctx context.Context, wanted []*streampb.Subscription) (subscriptions []delivery.Subscription, answers []any, err error) {
	c.silence.ignore(true)
	defer c.silence.ignore(false)
	seen := make(map[string]struct{}, len(wanted))
	names := c.server.node.Hub().Names(ctx, c.namespaces(wanted))
	for _, w := range wanted {
		sub, err := c.readSubscription(ctx, w, seen, names)
		switch {
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case err != nil:
			answers = append(answers, rejected(w.GetId(), err))
			continue
		}
		subscriptions = append(subscriptions, sub)
		answers = append(answers, &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Subscribed{Subscribed: &streampb.Subscribed{Id: sub.ID}}})
	}
	return subscriptions, answers, nil
}

// namespaces returns the namespaces that the client may ask about.
func (c *connection) namespaces(wanted []*streampb.Subscription) []change.Namespace {
	all := make([]change.Namespace, 0, len(wanted))
	for _, w := range wanted {
		if c.server.input.Check(w) == nil && c.identity.Permit(w.GetDb(), w.GetColl()) == nil {
			all = append(all, change.Namespace{DB: w.GetDb(), Coll: w.GetColl()})
		}
	}
	return all
}

// A subscribed is a subscription that is counted in the account.
type subscribed struct {
	program *match.Program
	texts   int // bytes
}

// readSubscription checks, authorizes, counts and compiles one subscription, in this order. seen
// holds the IDs in the same request, names what there is under their names.
func (c *connection) readSubscription(ctx context.Context, m *streampb.Subscription, seen map[string]struct{}, names delivery.Names) (delivery.Subscription, error) {
	if err := c.server.input.Check(m); err != nil {
		return delivery.Subscription{}, err
	}
	if err := c.identity.Permit(m.GetDb(), m.GetColl()); err != nil {
		return delivery.Subscription{}, err
	}
	sub, filter, err := readSubscription(m, c.server.cfg.Carries)
	if err != nil {
		return sub, err
	}
	if sub.Recover && c.unkept != nil {
		return sub, fault.Newf(fault.SessionBadRequest, "ON_LOSS_SNAPSHOT: %w", c.unkept)
	}
	if _, twice := seen[sub.ID]; twice {
		return sub, fault.Newf(fault.SessionBadRequest, "duplicate subscription %q", sub.ID)
	}
	before, replaced := c.subscribed[sub.ID]
	if !replaced {
		if err := c.account.Subscribe(1); err != nil {
			return sub, err
		}
	}
	texts := c.server.input.Cost(m)
	if sub.Program, sub.Missing, err = c.server.node.Hub().Compile(ctx, c.account.Key(), filter, names); err == nil {
		err = c.account.Keep(sub.Program, texts)
	}
	switch {
	case err != nil && !replaced:
		c.account.Unsubscribe(1)
		return sub, err
	case err != nil:
		return sub, err
	case replaced:
		c.account.Drop(before.program, before.texts)
	}
	seen[sub.ID] = struct{}{}
	c.subscribed[sub.ID] = subscribed{sub.Program, texts}
	return sub, nil
}

// giveBack releases ended subscriptions in the account.
func (c *connection) giveBack(ids []string) {
	n := 0
	for _, id := range ids {
		if of, there := c.subscribed[id]; there {
			c.account.Drop(of.program, of.texts)
			delete(c.subscribed, id)
			n++
		}
	}
	c.account.Unsubscribe(n)
}
