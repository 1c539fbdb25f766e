package checkpoint

import (
	"context"
	"time"

	"mongostream/change"
)

// A Row is what is remembered of a gateway.
type Row struct {
	Gateway, Process string
	Started          time.Time
	Partitions       int
	Base             change.Position
	Positions        map[change.Partition]change.Position
	SeenAt           time.Time
}

// A RowKeeper keeps the rows of gateways.
type RowKeeper interface {
	SaveRow(ctx context.Context, r Row) error
	Row(ctx context.Context, gateway string) (row Row, ok bool, err error)
	Rows(ctx context.Context) ([]Row, error)
	DeleteRow(ctx context.Context, gateway string) error
}
