package wiring

import (
	"context"
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/oplog"
	"github.com/mongostream/streamer/oplog/oplogtest"
	"github.com/mongostream/streamer/streamer"
)

// newNode makes a node of so many partitions over a log in which nothing happens.
func newNode(t *testing.T, partitions int, store streamer.Checkpoints) (*streamer.Node, *oplog.Log) {
	t.Helper()
	source := &oplogtest.Log{}
	source.Tick(1)
	reach := oplog.NewRange(oplog.RangeConfig{Ask: func(context.Context) (gap.Reach, error) {
		first, last := source.Reach()
		return gap.Reach{First: first, Last: last}, nil
	}})
	log := oplog.New(oplog.Config{Partitions: partitions, Reach: reach.Now}, source)
	return streamer.NewNode(streamer.NodeConfig{
		Origin: checkpoint.Origin{Incarnation: 1, Partitions: partitions, Start: change.Timestamp{T: 1001, I: 1}}, Range: reach,
	}, delivery.New(delivery.Config{Partitions: partitions}, log), log, store), log
}
