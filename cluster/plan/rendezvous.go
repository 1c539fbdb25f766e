package plan

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/zeebo/xxh3"
)

// seed returns the hash seed of a member's scores.
func seed(node string) uint64 { return xxh3.HashString(node) }

// score is how high a partition and a member rank each other: -weight / ln(u) of a hash u in (0,
// 1), by which a member comes first in as many of all partitions as its weight is of all weights
// (Schindelhauer and Schomaker, Weighted Distributed Hash Tables, 2005).
func (p *assigner) score(partition, member int) float64 {
	m := &p.members[member]
	return scored(m.hash(partition), m.weight)
}

func scored(u, weight float64) float64 { return -weight / math.Log(u) }

// hash returns a number in (0, 1) of a partition and a member.
func (s *seat) hash(partition int) float64 {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], uint32(partition))
	return (float64(xxh3.HashSeed(key[:], s.seed)>>11) + 0.5) / (1 << 53)
}

// A bid is a partition's for a member.
type bid struct {
	partition int
	score     float64
}

// compareBids puts the highest first.
func compareBids(a, b bid) int {
	switch {
	case a.score > b.score:
		return -1
	case a.score < b.score:
		return 1
	default:
		return a.partition - b.partition
	}
}

// choice returns the highest-ranked member for a partition, of those that take any and rank below
// the last one that it asked.
func (p *assigner) choice(partition int, last int, below float64) (best int, score float64) {
	best = nobody
	var highest, weight float64
	for m := range p.members {
		if !p.members[m].takes {
			continue
		}
		u := p.members[m].hash(partition)
		if best != nobody && p.members[m].weight == weight && u <= highest {
			continue // of equal weights the higher hash wins: most logarithms are spared
		}
		s := scored(u, p.members[m].weight)
		behind := last == nobody || s < below || s == below && m > last
		if behind && (best == nobody || s > score) {
			best = m
			score = s
			highest = u
			weight = p.members[m].weight
		}
	}
	return best, score
}

// rank returns who each partition ranks highest.
func (p *assigner) rank() []int {
	first := make([]int, len(p.at))
	for i := range first {
		first[i], _ = p.choice(i, nobody, 0)
	}
	return first
}

// match finds the one stable matching of partitions with members of limited room: each partition
// asks the member that it ranks highest, a full member rejects its lowest, and a rejected partition
// asks its next choice. The result has an entry for every partition.
func (p *assigner) match(partitions, room []int) (to []int) {
	to = make([]int, len(p.at))
	for i := range to {
		to[i] = nobody
	}
	held := make([][]bid, len(p.members))
	for _, i := range partitions {
		m := p.first[i]
		score := 0.0
		if m != nobody {
			score = p.score(i, m)
		}
		for m != nobody {
			mine := bid{partition: i, score: score}
			at, _ := slices.BinarySearchFunc(held[m], mine, compareBids)
			held[m] = slices.Insert(held[m], at, mine)
			to[i] = m
			if len(held[m]) <= room[m] {
				break
			}
			lowest := held[m][room[m]]
			held[m] = held[m][:room[m]]
			i = lowest.partition
			to[i] = nobody
			m, score = p.choice(i, m, lowest.score)
		}
	}
	return to
}

// home returns the places of the free partitions when only the present members count.
func (p *assigner) home() []int {
	var free []int
	for i, m := range p.at {
		if m != nobody && p.members[m].takes && !p.pinned[i] {
			free = append(free, i)
		}
	}
	room := make([]int, len(p.members))
	for m, s := range p.members {
		room[m] = s.quota - s.fixed
	}
	return p.match(free, room)
}
