package etcd

import (
	"fmt"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/mongostream/streamer/change"
)

// A deed is what somebody did to one partition, and an outcome what came of it.
type (
	deed struct {
		kind      string
		partition change.Partition
		process   int
		epoch     uint64
		at        int  // the event that a mark stands at
		again     bool // it was sent more than once: an earlier time may have had effect
	}
	outcome struct {
		refused bool
		process int
		epoch   uint64
		at      int
	}
)

// A standing is how one partition stands: it has one owner or none, whose epoch is higher than all
// before.
type standing struct {
	process     int // 0 for nobody
	epoch, last uint64
	mark        int
	gone        uint64 // the processes whose memberships have ended, as bits
}

func (s standing) owns(d deed) bool {
	return s.process != 0 && s.process == d.process && s.epoch == d.epoch
}

func (s standing) has(process int) bool { return s.gone&(1<<process) == 0 }

func (s standing) free() standing {
	s.process, s.epoch = 0, 0
	return s
}

func (s standing) marked(at int) standing {
	s.mark = max(s.mark, at)
	return s
}

// step returns how a partition may stand after a deed with this outcome; none says that this cannot
// come of it.
func (s standing) step(d deed, o outcome) []standing {
	permit := func(ok bool, next ...standing) []standing {
		if ok {
			return next
		}
		return nil
	}
	switch d.kind {
	case "claim":
		switch {
		case o.refused:
			return permit(!s.has(d.process), s)
		case s.process != 0:
			return permit(s.has(d.process) && o.process == s.process && o.epoch == s.epoch, s)
		}
		next := s
		next.process, next.epoch, next.last = d.process, o.epoch, o.epoch
		return permit(s.has(d.process) && o.process == d.process && o.epoch > s.last, next)
	case "begin":
		if o.refused {
			return permit(!s.owns(d), s)
		}
		return permit(s.owns(d) && o.at == s.mark, s)
	case "save":
		switch {
		case !o.refused:
			return permit(s.owns(d), s.marked(d.at))
		case d.again:
			return []standing{s, s.marked(d.at)}
		}
		return permit(!s.owns(d), s)
	case "give":
		if s.owns(d) {
			return []standing{s.free()}
		}
		return []standing{s}
	case "evict":
		switch {
		case s.process == 0 || s.epoch != d.epoch:
			return []standing{s}
		case o.refused: // maybe only when it was sent again
			return []standing{s, s.free()}
		}
		return []standing{s.free()}
	case "leave":
		next := s
		if s.process == d.process {
			next = s.free()
		}
		next.gone |= 1 << d.process
		return []standing{next}
	}
	return nil
}

// model is the one for porcupine: a history fits if each partition's does.
func model() porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			parts := make([][]porcupine.Operation, parts)
			for _, op := range history {
				p := op.Input.(deed).partition
				parts[p] = append(parts[p], op)
			}
			return parts
		},
		Init: func() []any { return []any{standing{}} },
		Step: func(state, input, output any) []any {
			var next []any
			for _, s := range state.(standing).step(input.(deed), output.(outcome)) {
				next = append(next, s)
			}
			return next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
	return nondeterministic.ToModel()
}

// parts is how many partitions a history is about.
const parts = 4

// A model that permits everything would prove nothing.
func TestHistoriesWithTwoOwnersAreFound(t *testing.T) {
	at := func(moment int64, d deed, o outcome) porcupine.Operation {
		return porcupine.Operation{ClientId: d.process, Input: d, Call: moment, Output: o, Return: moment}
	}
	good := []porcupine.Operation{
		at(1, deed{kind: "claim", process: 1}, outcome{process: 1, epoch: 5}),
		at(2, deed{kind: "claim", process: 2}, outcome{process: 1, epoch: 5}),
		at(3, deed{kind: "save", process: 1, epoch: 5, at: 8}, outcome{}),
		at(4, deed{kind: "evict", epoch: 5}, outcome{}),
		at(5, deed{kind: "claim", process: 2}, outcome{process: 2, epoch: 7}),
		at(6, deed{kind: "begin", process: 2, epoch: 7}, outcome{at: 8}),
	}
	bad := map[string]porcupine.Operation{
		"a second owner":         at(7, deed{kind: "claim", process: 3}, outcome{process: 3, epoch: 9}),
		"a deposed owner's mark": at(7, deed{kind: "save", process: 1, epoch: 5, at: 12}, outcome{}),
		"an owner refused":       at(7, deed{kind: "save", process: 2, epoch: 7, at: 12}, outcome{refused: true}),
		"another mark":           at(7, deed{kind: "begin", process: 2, epoch: 7}, outcome{at: 4}),
		"an owner nobody knows":  at(7, deed{kind: "claim", process: 1}, outcome{process: 1, epoch: 5}),
		"a member not let in":    at(7, deed{kind: "claim", process: 1}, outcome{refused: true}),
	}
	if !porcupine.CheckOperations(model(), good) {
		t.Error("a good history is refused")
	}
	for name, op := range bad {
		if porcupine.CheckOperations(model(), append(slices.Clone(good), op)) {
			t.Errorf("%s is not found", name)
		}
	}
}
