package checkpointtest_test

import (
	"testing"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/checkpoint/checkpointtest"
)

func openMemory(t *testing.T) checkpointtest.Harness {
	m := checkpointtest.NewMemory(checkpointtest.Partitions)
	revision := uint64(0)
	return checkpointtest.Harness{
		Store: m,
		Begin: func(partitions ...change.Partition) []change.Term {
			o, err := m.Create(t.Context(), checkpointtest.Origin("c1"))
			if err != nil {
				t.Fatal(err)
			}
			revision++
			epoch := change.Epoch{Incarnation: o.Incarnation, Revision: revision}
			terms := make([]change.Term, len(partitions))
			for i, p := range partitions {
				terms[i] = change.Term{Partition: p, Epoch: epoch, Context: t.Context()}
			}
			return terms
		},
		Reopen: func() checkpointtest.Store { return m },
		Raw: func(k checkpoint.Key) []byte {
			all, err := m.Load(t.Context(), k.Subscriber)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range all {
				if c.Key != k {
					continue
				}
				stored, err := checkpoint.Encode(c, checkpoint.Trail{})
				if err != nil {
					t.Fatal(err)
				}
				return stored
			}
			return nil
		},
	}
}

func TestMemoryIsAStore(t *testing.T) { checkpointtest.TestStore(t, openMemory) }

func TestMemoryHasOneOwnerOfEachPartition(t *testing.T) {
	m := checkpointtest.NewMemory(2)
	term := change.Term{Partition: 1, Epoch: change.Epoch{Incarnation: 1, Revision: 7}}
	if _, err := m.ClaimTerms(t.Context(), checkpointtest.Subscriber, []change.Term{term}); err != nil {
		t.Fatal(err)
	}
	save := func(e change.Epoch) error {
		c := checkpointtest.Shared(change.Term{Partition: 1, Epoch: e}, checkpointtest.Event(1))
		c.Partitions = 2
		return m.Save(t.Context(), []checkpoint.Checkpoint{c})[0]
	}
	for _, stranger := range []change.Epoch{{}, {Incarnation: 1, Revision: 8}, {Incarnation: 2, Revision: 1}} {
		if err := save(stranger); err == nil {
			t.Errorf("epoch %s saved without a claim", stranger)
		}
	}
	if err := save(term.Epoch); err != nil {
		t.Error(err)
	}
}
