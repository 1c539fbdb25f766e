package member

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/cluster/roster"
	"github.com/mongostream/streamer/cluster/rostertest"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gap"
	"github.com/mongostream/streamer/handoff/ledger"
	"github.com/mongostream/streamer/lane"
	"github.com/mongostream/streamer/lane/lanetest"
	"github.com/mongostream/streamer/streamer"
)

// A page of the ledger: a record stands, and nobody takes it away.
type page struct {
	Ledger

	record        ledger.Record
	prepare, look error // where it does not answer
}

func (p page) Prepare(context.Context, ledger.Record) (ledger.Record, error) {
	if p.prepare != nil {
		return ledger.Record{}, p.prepare
	}
	return ledger.Record{}, ledger.ErrMoving
}

func (p page) Look(context.Context, change.Partition) (ledger.Sight, error) {
	return ledger.Sight{Record: p.record}, p.look
}

type surveyor struct{ log *lanetest.Log }

func (s surveyor) Survey(context.Context) (gap.Reach, error) {
	first, last := s.log.Reach()
	return gap.Reach{First: first, Last: last, Majority: last}, nil
}

// A partition of which the plan wants something else is moved by whatever stands in the ledger, if that is of the term that is to go. A record
// that somebody has left behind must not keep it here for ever. Where the ledger does not answer it stays, and is asked for again.
func TestRecordThatIsLeftBehindKeepsNoPartition(t *testing.T) {
	epoch := change.Epoch{Incarnation: 1, Revision: 7}
	me := ledger.Party{Node: "a", Process: "p"}
	for name, c := range map[string]struct {
		page  page
		plan  string
		stays bool
	}{
		"a handoff of the term":            {page{record: ledger.Record{Revision: 9, From: me, Epoch: epoch, Phase: ledger.Prepared}}, "b", true},
		"a handoff of somebody before":     {page{record: ledger.Record{Revision: 6, From: ledger.Party{Node: "c", Process: "q"}, Phase: ledger.Prepared}}, "b", false},
		"a handoff of an earlier term":     {page{record: ledger.Record{Revision: 6, From: me, Epoch: change.Epoch{Incarnation: 1, Revision: 5}, Phase: ledger.Prepared}}, "b", false},
		"a plan that has changed its mind": {page{}, "a", true},
		"no answer to the beginning":       {page{prepare: context.DeadlineExceeded}, "b", true},
		"no answer to what stands":         {page{look: fault.Newf(fault.EtcdUnreachable, "away")}, "b", true},
		"an owner that has changed":        {page{prepare: ledger.ErrStale}, "b", false},
		"nobody who could have it":         {page{prepare: context.DeadlineExceeded}, "c", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &lanetest.Log{}
				log.Tick(1)
				marks := checkpoint.NewMemory(1)
				node := streamer.NewNode(streamer.Config{
					Origin: checkpoint.Origin{Incarnation: 1, Partitions: 1, Start: change.Timestamp{T: 1001, I: 1}}, Surveyor: surveyor{log},
				}, lane.NewLog(lane.Config{Partitions: 1}, log), marks)
				m := New(Config{
					Member: cluster.Member{Node: "a", Process: "p"}, Partitions: 1, Expected: 2, Roster: rostertest.NewMemory(1, nil).For("a"),
					Ledger: c.page, Node: node, Logger: slog.New(slog.DiscardHandler),
				})
				view := roster.View{
					Plan: roster.Plan{Version: 2, Owners: []string{c.plan}}, Owners: []roster.Owner{{Node: "a", Process: "p", Epoch: epoch}},
					Members: []roster.Seat{{Heartbeat: roster.Heartbeat{Node: "a"}}, {Heartbeat: roster.Heartbeat{Node: "b", Status: roster.Healthy}}},
				}
				m.view.Store(&view)
				term := change.Term{Partition: 0, Epoch: epoch, Context: t.Context()}
				if err := node.Serve(t.Context(), []change.Term{term}); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- node.Run(ctx) }()
				m.mover.move(t.Context(), []change.Term{term})
				time.Sleep(time.Second)
				if stays := len(node.Status()) == 1; stays != c.stays {
					t.Errorf("the partition stays: %t", stays)
				}
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
