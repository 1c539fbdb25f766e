package gateway

import (
	"context"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/streampb"
	"github.com/mongostream/streamer/streamer"
)

// slowDown waits until the client may change n subscriptions; a change of none counts as one.
func (c *connection) slowDown(ctx context.Context, n int) error {
	c.silence.ignore(true)
	defer c.silence.ignore(false)
	if err := c.limit.WaitN(ctx, max(1, min(n, c.server.cfg.SubscribeBurst))); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// compile compiles the requested subscriptions and returns an answer for each. It stops when the context ends, because nobody waits for them.
func (c *connection) compile(ctx context.Context, wanted []*streampb.Subscription) (subscriptions []streamer.Subscription, answers []any) {
	seen := make(map[string]struct{}, len(wanted))
	for _, w := range wanted {
		if ctx.Err() != nil {
			break
		}
		sub, err := c.readSubscription(w, seen)
		if err != nil {
			answers = append(answers, rejected(w.GetId(), err))
			continue
		}
		subscriptions = append(subscriptions, sub)
		answers = append(answers, &streampb.ConnectResponse{Message: &streampb.ConnectResponse_Subscribed{Subscribed: &streampb.Subscribed{Id: sub.ID}}})
	}
	return subscriptions, answers
}

// readSubscription authorizes, compiles and counts one subscription. seen holds the IDs in the same request.
func (c *connection) readSubscription(m *streampb.Subscription, seen map[string]struct{}) (streamer.Subscription, error) {
	if err := c.identity.Permit(m.GetDb(), m.GetColl()); err != nil {
		return streamer.Subscription{}, err
	}
	sub, err := readSubscription(m, c.server.cfg.Carries)
	if err != nil {
		return sub, err
	}
	if sub.Recover && c.unkept != nil {
		return sub, fault.Newf(fault.SessionBadRequest, "ON_LOSS_SNAPSHOT: %w", c.unkept)
	}
	if _, twice := seen[sub.ID]; twice {
		return sub, fault.Newf(fault.SessionBadRequest, "duplicate subscription %q", sub.ID)
	}
	if _, replaced := c.subscribed[sub.ID]; !replaced {
		if err := c.account.Subscribe(1); err != nil {
			return sub, err
		}
	}
	seen[sub.ID], c.subscribed[sub.ID] = struct{}{}, struct{}{}
	return sub, nil
}

// giveBack releases ended subscriptions in the account.
func (c *connection) giveBack(ids []string) {
	n := 0
	for _, id := range ids {
		if _, there := c.subscribed[id]; there {
			delete(c.subscribed, id)
			n++
		}
	}
	c.account.Unsubscribe(n)
}
