package supervisor

import (
	"context"
	"errors"
	"time"
)

// ErrDeposed reports that another node sweeps now.
var ErrDeposed = errors.New("another node sweeps")

// A Pause keeps a component, or all of a node, from being restarted, until it expires.
type Pause struct {
	// Slug is that of a component, or the name of a node.
	Slug string `json:"slug"`
	By   string `json:"by"`
	// Until is when it expires, by the operator's clock; informative.
	Until time.Time `json:"until"`
}

// A Standing is the content of the store beside the reports.
type Standing struct {
	// Sweep is the number of the last sweep, By whose it was.
	Sweep uint64
	By    string
	// Used are the restarts of the last window, by slug.
	Used   map[string]int
	Paused []Pause
	Change Change
}

// A Commit is what one sweep writes.
type Commit struct {
	// Report is the sweep's. Joined says that it takes the place of the one before it, which must
	// be of the same process.
	Report Report
	Joined bool
	Orders []Order
	// Charges are the slugs whose budget the orders take from.
	Charges []string
}

// A Reader reads the supervisor's state. Its methods may block on the network until the context
// ends, like those of the other ports.
type Reader interface {
	Look(ctx context.Context) (Standing, error)
	// Reports returns the last reports, at most n, the newest first.
	Reports(ctx context.Context, n int) ([]Report, error)
}

// A Keeper writes for the sweeping node.
type Keeper interface {
	Reader
	// Begin makes this process the one that sweeps, and returns the number of the last sweep.
	Begin(ctx context.Context, node, process string) (sweep uint64, err error)
	// Commit writes a sweep, whose number is one more than that of the last: all of it, or nothing.
	// ErrDeposed says that another process has begun. After another error it may have been written:
	// writing it again changes nothing then.
	Commit(ctx context.Context, c Commit) error
}

// Orders returns the orders for a node.
type Orders interface {
	// Next returns the orders for a node as soon as there are any, and none after a while.
	Next(ctx context.Context, node string) ([]Order, error)
	// Done removes an order. It is idempotent.
	Done(ctx context.Context, o Order) error
}

// A Control is changed by operators.
type Control interface {
	// Pause adds a pause, or replaces that of the slug, for ttl. Unpause removes it, and is
	// idempotent.
	Pause(ctx context.Context, p Pause, ttl time.Duration) error
	Unpause(ctx context.Context, slug string) error
	// Set replaces the operators' changes of the settings.
	Set(ctx context.Context, c Change) error
}

// A Store is all of it.
type Store interface {
	Keeper
	Orders
	Control
}
