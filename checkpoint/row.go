package checkpoint

import "github.com/mongostream/streamer/checkpoint/row"

// MaxRows is how many rows of gateways a store keeps, RowLife for how long after a gateway was seen.
const (
	MaxRows = row.MaxRows
	RowLife = row.Life
)

// ErrRowSuperseded says that a process of the gateway that started later has saved its row.
var ErrRowSuperseded = row.ErrSuperseded

// A Row is what is remembered of a gateway, beside the marks and apart from their fence. Package row says what it promises.
type Row = row.Row

// A RowKeeper keeps the rows of gateways. Whatever is done to marks, operators' deeds included, leaves them as they are.
type RowKeeper = row.Keeper

var _ RowKeeper = (*Memory)(nil)

// SortRows puts rows into the order of their gateways' names.
func SortRows(rows []Row) { row.Sort(rows) }
