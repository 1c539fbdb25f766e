package retention

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"
)

// An Action is an operator's change of a chain beside the nodes. It is kept in the store until
// a node has written it into the audit log of the cluster.
type Action struct {
	At time.Time `json:"at"`
	By string    `json:"by"`
	// Command and Arguments are the operator's, without secrets and without _ids.
	Command   string   `json:"command"`
	Arguments []string `json:"arguments"`

	// Number identifies the action in its store.
	Number uint64 `json:"-"`
}

// maxAction bounds an action in bytes.
const maxAction = 64 << 10

// actions returns the folder of the actions on all incarnations of the source: nodes see only the
// chain of the present one.
func (c *Chain) actions() string { return path.Dir(c.prefix) + "/action" }

// RecordAction keeps an action for the audit log. Call it before anything is done.
func (c *Chain) RecordAction(ctx context.Context, by, command string, arguments ...string) error {
	now := time.Now().UTC()
	text, err := json.Marshal(Action{At: now, By: by, Command: command, Arguments: arguments})
	if err != nil {
		return fmt.Errorf("encode action: %w", err)
	}
	if err := c.store.Put(ctx, c.actions()+"/"+name(uint64(now.UnixNano())), text); err != nil {
		return fmt.Errorf("record the action: %w", err)
	}
	return nil
}

// Actions returns the actions on the chain, and on those of other incarnations, that are in no
// audit log yet, the earliest first. With an error it returns those that could be read.
func (c *Chain) Actions(ctx context.Context) (all []Action, err error) {
	kept, err := c.list(ctx, c.actions(), 0)
	for _, s := range kept {
		text, _, failed := c.store.Get(ctx, c.actions()+"/"+s.Name, 0, maxAction)
		if errors.Is(failed, ErrNotFound) { // another node has written it
			continue
		}
		if failed != nil {
			err = cmp.Or(err, fmt.Errorf("read action %s: %w", s.Name, failed))
			continue
		}
		a := Action{Number: s.Number}
		if err := json.Unmarshal(text, &a); err != nil { // it happened, whatever it was
			a.At = s.Modified.UTC()
			a.By = "somebody"
			a.Command = "a command on the retained log whose record cannot be read"
		}
		all = append(all, a)
	}
	return all, err
}

// ForgetAction removes an action that is in the audit log.
func (c *Chain) ForgetAction(ctx context.Context, a Action) error {
	return c.store.Delete(ctx, c.actions()+"/"+name(a.Number))
}
