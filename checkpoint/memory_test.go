package checkpoint_test

import (
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
	"github.com/mongostream/streamer/checkpoint/gaptest"
	"github.com/mongostream/streamer/checkpoint/record"
	"github.com/mongostream/streamer/checkpoint/rewindtest"
)

func openMemory(t *testing.T) checkpointtest.Harness {
	m := checkpoint.NewMemory(checkpointtest.Partitions)
	revision := uint64(0)
	return checkpointtest.Harness{
		Store: m,
		Begin: func(partitions ...change.Partition) []change.Term {
			revision++
			epoch := change.Epoch{Incarnation: 1, Revision: revision}
			if o, err := m.Origin(t.Context()); err == nil {
				epoch.Incarnation = o.Incarnation
			}
			terms := make([]change.Term, len(partitions))
			for i, p := range partitions {
				terms[i] = change.Term{Partition: p, Epoch: epoch, Context: t.Context()}
			}
			return terms
		},
		Reopen: func() checkpointtest.Store { return m },
		Raw: func(p change.Partition) []byte {
			mark, err := m.Load(t.Context(), p)
			if err != nil {
				return nil
			}
			value, err := record.EncodeMark(mark, checkpoint.Trail{}, checkpointtest.Partitions)
			if err != nil {
				t.Fatal(err)
			}
			return value
		},
	}
}

func TestMemoryIsAStore(t *testing.T)       { checkpointtest.TestStore(t, openMemory) }
func TestMemoryKeepsHistory(t *testing.T)   { rewindtest.TestStore(t, openMemory) }
func TestMemoryKeepsTheGapLog(t *testing.T) { gaptest.TestKeeper(t, openMemory) }

func TestMemoryHasOneOwnerOfEachPartition(t *testing.T) {
	m := checkpoint.NewMemory(2)
	term := change.Term{Partition: 1, Epoch: change.Epoch{Incarnation: 1, Revision: 7}}
	if _, err := m.Claim(t.Context(), []change.Term{term}); err != nil {
		t.Fatal(err)
	}
	strangers := []change.Epoch{{}, {Incarnation: 1, Revision: 8}, {Incarnation: 2, Revision: 1}}
	for _, stranger := range strangers {
		mark := checkpointtest.MarkAt(change.Term{Partition: 1, Epoch: stranger}, checkpointtest.Event(1))
		if err := m.Save(t.Context(), []checkpoint.Mark{mark})[0]; err == nil {
			t.Errorf("epoch %s saved without a claim", stranger)
		}
	}
	if err := m.Save(t.Context(), []checkpoint.Mark{checkpointtest.MarkAt(term, checkpointtest.Event(1))})[0]; err != nil {
		t.Error(err)
	}
}

func TestMemoryOfFewerPartitionsRefusesMore(t *testing.T) {
	m := checkpoint.NewMemory(2)
	term := change.Term{Partition: 2, Epoch: change.Epoch{Incarnation: 1, Revision: 1}}
	if _, err := m.Claim(t.Context(), []change.Term{term}); err != nil {
		t.Fatal(err)
	}
	if err := m.Save(t.Context(), []checkpoint.Mark{checkpointtest.MarkAt(term, checkpointtest.Event(1))})[0]; err == nil {
		t.Error("partition 2 of 2 was saved")
	}
}
