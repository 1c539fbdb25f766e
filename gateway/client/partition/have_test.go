package partition

import (
	"encoding/json"
	"testing"
)

// places reads positions out of bytes, with heads and hashes from a small alphabet, so that many are equal.
func places(b []byte) (list []Position) {
	for ; len(b) > 0; b = b[1:] {
		p := Position{Head: []byte{b[0] >> 5}}
		for bit := range 4 {
			if b[0]>>bit&1 == 1 {
				p.Hashes = append(p.Hashes, []byte{byte(bit)})
			}
		}
		if b[0]>>4&1 == 1 {
			p.Head = append(p.Head, 0)
		}
		list = append(list, p)
	}
	return list
}

// FuzzHave moves a partition about. However it goes: it never moves back unless it is told to, what was reached has been seen, and nothing
// is taken for seen that was never reached.
func FuzzHave(f *testing.F) {
	f.Add([]byte("\x00\x21\x22\x43\x64"), uint8(0))
	f.Add([]byte("\xff\x01\x02\x04\x08\x10"), uint8(4))
	f.Fuzz(func(t *testing.T, b []byte, rewinds uint8) {
		var h Have
		var reached []Position
		for i, p := range places(b) {
			before := h
			switch at, ok := h.Begin(p); {
			case !before.Known && (!ok || !at.Equal(p)):
				t.Fatalf("the first batch begins at %s and not at %s", at, p)
			case before.Known && !at.Equal(before.At):
				t.Fatalf("a look at a batch has moved %s to %s", before.At, at)
			case ok != at.reaches(p):
				t.Fatal("a hole")
			}
			if !before.Known {
				reached = append(reached, p)
			}
			if rewinds>>(i%8)&1 == 1 {
				h.Rewind(p)
				if before.Known && !before.At.reaches(h.At) {
					t.Fatalf("a rewind has moved %s forward to %s", before.At, h.At)
				}
				reached = []Position{h.At}
				continue
			}
			h.Reach(p)
			reached = append(reached, p)
			if !h.At.reaches(p) || before.Known && !h.At.reaches(before.At) {
				t.Fatalf("%s and %s make %s", before.At, p, h.At)
			}
			for _, q := range places([]byte{0x01, 0x21, 0x42, 0x64, 0x88, 0x91}) {
				if h.At.Saw(q) != saw(reached, q) {
					t.Fatalf("at %s, by way of %v: saw %s: %t", h.At, reached, q, h.At.Saw(q))
				}
			}
		}
	})
}

// saw says in another way whether a change was seen: something behind its head was reached, or its hash at the head.
func saw(reached []Position, q Position) bool {
	for _, p := range reached {
		if string(p.Head) > string(q.Head) || string(p.Head) == string(q.Head) && len(q.Hashes) > 0 && p.has(q.Hashes[0]) {
			return true
		}
	}
	return false
}

func TestPositionsSurviveAsJSON(t *testing.T) {
	p := Positions{Cluster: "c", PartitionCount: 2, Partitions: map[uint32]Position{0: Of(at("a")), 1: Of(at("b", "1", "2"))}}
	text, err := json.Marshal(&p)
	if err != nil {
		t.Fatal(err)
	}
	var q Positions
	if err := json.Unmarshal(text, &q); err != nil {
		t.Fatal(err)
	}
	if q.Cluster != p.Cluster || !q.Complete() || !q.Partitions[1].Equal(p.Partitions[1]) || !q.Partitions[0].Equal(p.Partitions[0]) {
		t.Errorf("%s became %+v", text, q)
	}
}

func TestPositionsAreCompleteWithEveryPartition(t *testing.T) {
	some := map[uint32]Position{0: Of(at("a")), 1: Of(at("b"))}
	for _, tt := range []struct {
		name string
		p    Positions
		want bool
	}{
		{"all", Positions{PartitionCount: 2, Partitions: some}, true},
		{"none", Positions{}, false},
		{"one is missing", Positions{PartitionCount: 3, Partitions: some}, false},
		{"one too many", Positions{PartitionCount: 1, Partitions: some}, false},
		{"another one", Positions{PartitionCount: 2, Partitions: map[uint32]Position{0: Of(at("a")), 2: Of(at("b"))}}, false},
		{"no head", Positions{PartitionCount: 1, Partitions: map[uint32]Position{0: {}}}, false},
	} {
		if got := tt.p.Complete(); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

func TestLowestIsWhereAllHaveBeen(t *testing.T) {
	p := Positions{Partitions: map[uint32]Position{0: Of(at("c", "1")), 1: Of(at("b", "2")), 2: Of(at("b", "3")), 3: Of(at("d"))}}
	if low := p.Lowest(); string(low.Head) != "b" || !low.reaches(Of(at("b", "2", "3"))) || len(low.Hashes) != 2 {
		t.Errorf("%s", low)
	}
}
